"""A scalar switching (ReLU) and a tensor switching network learn scikit-learn's handwritten digits side by side.

python examples/digits.py
"""

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import Tensor, nn
from torch.nn import functional as F

from tensorswitch import SwitchedLinear

EPOCHS, BATCH, WIDTH, SEED = 10, 32, 64, 0


def networks() -> dict[str, nn.Module]:
    """Two hidden layers each; 64 pixels in, 10 digits out; all weights drawn by Glorot's rule."""
    torch.manual_seed(SEED)
    ss = nn.Sequential(nn.Linear(64, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 10))
    for layer in ss:
        if isinstance(layer, nn.Linear):
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)
    ts = nn.Sequential(SwitchedLinear(64, WIDTH, WIDTH, learn_gates="ibp"), SwitchedLinear(WIDTH, WIDTH, 10, learn_gates="ibp"))
    return {"SS": ss, "TS": ts}


def train(model: nn.Module, data: list[Tensor]) -> list[float]:
    """Test error in percent after each epoch."""
    x, x_test, y, y_test = data
    optimiser = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-3)
    errors = []
    for _ in range(EPOCHS):
        for batch in torch.randperm(len(x)).split(BATCH):
            optimiser.zero_grad()
            F.cross_entropy(model(x[batch]), y[batch]).backward()
            optimiser.step()
        with torch.no_grad():
            errors.append(100 * (model(x_test).argmax(1) != y_test).float().mean().item())
    return errors


def main() -> None:
    images, labels = load_digits(return_X_y=True)
    parts = train_test_split(images / 16, labels, test_size=0.3, random_state=SEED, stratify=labels)
    data = [torch.as_tensor(part, dtype=torch.float32 if part.ndim == 2 else torch.int64) for part in parts]
    mean = data[0].mean(0)
    data[0], data[1] = data[0] - mean, data[1] - mean
    print(f"Handwritten digits: {len(data[0])} to learn, {len(data[1])} to test; width {WIDTH}, SGD, seed {SEED}.\nTest error in percent:\n")
    curves = {}
    for name, model in networks().items():
        torch.manual_seed(SEED)
        curves[name] = train(model, data)
    print("epoch   " + "".join(f"{epoch:6d}" for epoch in range(1, EPOCHS + 1)))
    for name, errors in curves.items():
        print(f"{name:8}" + "".join(f"{error:6.1f}" for error in errors))
    print("\nSS is a ReLU network. In TS an active unit passes on its whole input, and its gates learn by inverted backpropagation.")


if __name__ == "__main__":
    main()
