import json

from tensorswitch.training import Epoch, History


def test_history_knows_its_best_epoch():
    history = History(
        [
            Epoch(1, 1.0, 2.0, 0.5, validation_error=0.3),
            Epoch(2, 1.0, 1.0, 0.2, validation_error=0.2),
            Epoch(3, 1.0, 0.5, 0.1, validation_error=0.2),
        ]
    )
    assert history.best.epoch == 2
    assert json.loads(history.to_json())[0]["test_error"] is None
