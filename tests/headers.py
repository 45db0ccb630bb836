"""Files whose header was changed, as damage or a stranger would."""

import json
import struct


def rewritten(path, change):
    """Change the header of a file."""
    content = path.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + length])
    own = json.loads(header["__metadata__"]["tensorswitch"])
    change(own)
    header["__metadata__"]["tensorswitch"] = json.dumps(own)
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + content[8 + length :])
