import numpy as np
import pytest
import torch
from torch.nn import functional as F

from tensorswitch import Routes, SwitchedConv2d, switched_linear
from tensorswitch.features import (
    PatchBank2d,
    PatchFeatures,
    as_images,
    default_patch_sizes,
    learn_patch_bank,
    learn_patch_features,
    pixel_shares,
    reduced,
)
from tensorswitch.persistence import load, save
from tests.headers import rewritten


def some_images(count=20, channels=2, height=11, width=9, dtype=torch.float32):
    generator = torch.Generator().manual_seed(1)
    return torch.rand(count, channels, height, width, generator=generator).to(dtype)


def patches_of(module, images):
    """Whitened patches by the definition: unfold, normalise, project."""
    raw = F.unfold(images, module.size, stride=module.stride).transpose(1, 2)
    centred = raw - raw.mean(2, keepdim=True)
    normal = centred / (centred.square().mean(2, keepdim=True) + module.floor).sqrt()
    return normal @ module.filters.flatten(1).t() - module.offset


@pytest.mark.parametrize("stride", [1, 2])
def test_projection_normalises_and_whitens_each_patch(stride):
    images = some_images(dtype=torch.float64)
    module = learn_patch_features(images, gates=5, size=3, stride=stride, components=7)
    p = module.project(images)
    torch.testing.assert_close(p[..., :-1], patches_of(module, images))
    assert (p[..., -1] == 1).all()


def test_whitened_patches_are_uncorrelated():
    images = some_images(2000)
    module = learn_patch_features(images, gates=5, size=3, components=6, shrinkage=0.0)
    p = module.project(images)[..., :-1].flatten(0, 1)
    torch.testing.assert_close(torch.cov(p.t()), torch.eye(6), atol=0.03, rtol=0)


@pytest.mark.parametrize("copies", ["score", 0, 4])
def test_readout_is_a_switched_linear_map_with_routes_to_windows(copies):
    images = some_images(dtype=torch.float64)
    module = learn_patch_features(
        images, gates=6, size=3, components=5, grid=2, copies=copies, power=1
    )
    f = module.pooled(images)
    readout = torch.randn(*f.shape[1:], 3, dtype=torch.float64)
    # The same as analysis weights V of shape (gates, windows · [p, 1], out): a patch in window w
    # is copied to the block of w.
    windows = module.grid**2
    m = module.gate_weight.shape[1]
    weight = torch.zeros(6, windows, m + 1, 3, dtype=torch.float64)
    for j in range(6):
        for w in range(windows):
            if copies == "score":
                direction = torch.cat([module.gate_weight[j], -module.threshold[j : j + 1]])
                weight[j, w] = direction[:, None] * readout[w, j, 0]
                weight[j, w, -1] += readout[w, j, 1]
            else:
                weight[j, w, :copies] = readout[w, j, :-1]
                weight[j, w, -1] = readout[w, j, -1]
    p = module.project(images)
    place = module.windows.argmax(0)
    total = torch.zeros(len(images), 3, dtype=torch.float64)
    for w in range(windows):
        inside = place == w
        rows = p[:, inside].reshape(-1, m + 1)
        gates = module.open_gates(images)[:, inside].reshape(-1, 6)
        target = torch.arange(len(images)).repeat_interleave(int(inside.sum()))
        routes = Routes(gates, target=target, rows=len(images))
        total += switched_linear(rows, routes, weight[:, w].contiguous()) / int(inside.sum())
    torch.testing.assert_close(torch.einsum("nwjc,wjco->no", f, readout), total)


@pytest.mark.parametrize(("copies", "grid"), [("score", 1), (4, 1), (4, 2), (0, 3)])
def test_readout_is_a_switched_convolution_with_mean_pooling(copies, grid):
    """Without the power, a readout is a SwitchedConv2d of the whitened patches for each window."""
    images = some_images(dtype=torch.float64)
    module = learn_patch_features(
        images, gates=6, size=3, components=5, grid=grid, copies=copies, power=1
    )
    module.threshold -= 1e-9  # which is the score of a patch, so that rounding would decide
    f = module.pooled(images)
    readout = torch.randn(*f.shape[1:], 3, dtype=torch.float64)
    patches = module.project(images)[..., :-1].transpose(1, 2).unflatten(2, module.positions)
    total = torch.zeros(len(images), 3, dtype=torch.float64)
    for window, inside in enumerate(module.windows):
        rows = inside.nonzero().flatten()
        layer = SwitchedConv2d(5, 6, 3, 1, bias=False, gate_bias=True, dtype=torch.float64)
        with torch.no_grad():
            layer.gate_weight.copy_(module.gate_weight[:, :, None, None])
            layer.gate_bias.copy_(-module.threshold)
            weight = torch.zeros(6, 5, 3, dtype=torch.float64)
            if copies == "score":
                weight += module.gate_weight[:, :, None] * readout[window, :, :1]
                constant = readout[window, :, 1] - module.threshold[:, None] * readout[window, :, 0]
            else:
                weight[:, :copies] = readout[window, :, :-1]
                constant = readout[window, :, -1]
            layer.weight.copy_(weight[:, :, None, None])
            layer.constant.copy_(constant)
            total += layer(patches).flatten(2)[:, :, rows].mean(2)
    torch.testing.assert_close(torch.einsum("nwjc,wjco->no", f, readout), total)


@pytest.mark.parametrize("copies", ["score", 3])
def test_max_pooling_keeps_the_copy_with_the_highest_score(copies):
    images = some_images(3, dtype=torch.float64)
    module = learn_patch_features(
        images, gates=4, size=3, components=5, pool="max", copies=copies, open_fraction=0.05
    )
    f = module.pooled(images)
    p = module.project(images)
    scores = p[..., :-1] @ module.gate_weight.t() - module.threshold
    place = module.windows.argmax(0)
    for n in range(3):
        for w in range(4):
            inside = (place == w).nonzero().flatten()
            for j in range(4):
                best = inside[scores[n, inside, j].argmax()]
                value = scores[n, best, j]
                copy = torch.stack([value, torch.ones_like(value)])
                if copies == 3:
                    copy = torch.cat([p[n, best, :3], p[n, best, -1:]])
                torch.testing.assert_close(f[n, w, j], copy * float(value > 0))


def test_gates_are_open_for_the_given_share_of_patches():
    images = some_images(500, height=16, width=16)
    module = learn_patch_features(images, gates=8, size=4, open_fraction=0.1)
    share = module.open_gates(images).float().mean((0, 1))
    torch.testing.assert_close(share, torch.full((8,), 0.1), atol=0.03, rtol=0)


@pytest.mark.parametrize("power", [0.5, 0.7, 1.0])
def test_power_is_signed(power):
    images = some_images()
    module = learn_patch_features(images, gates=4, size=3, copies=3, power=power)
    f = module.pooled(images).flatten(1)
    torch.testing.assert_close(module(images), f.sign() * f.abs() ** power)


def test_gradients_reach_the_image():
    module = learn_patch_features(some_images(dtype=torch.float64), gates=4, size=3, power=0.7)
    images = torch.rand(2, 2, 11, 9, dtype=torch.float64, requires_grad=True)
    with torch.no_grad():
        plain = module(images.detach())
    torch.testing.assert_close(module(images).detach(), plain)
    assert torch.autograd.gradcheck(module, images, atol=1e-4)


def test_flat_regions_do_not_amplify_noise():
    generator = torch.Generator().manual_seed(0)
    images = torch.zeros(200, 1, 16, 16)
    images[:, :, 4:12, 4:12] = torch.rand(200, 1, 8, 8, generator=generator)
    module = learn_patch_features(images, gates=16, size=4)
    noisy = images + 0.002 * torch.randn(images.shape, generator=generator)
    change = (module(noisy) - module(images)).norm() / module(images).norm()
    assert change < 0.1


def test_windows_cover_every_position_once():
    images = some_images(5, height=10, width=8)
    windows = learn_patch_features(images, gates=4, size=4, grid=3).windows
    assert windows.shape == (9, 7 * 5)
    torch.testing.assert_close(windows.sum(1), torch.ones(9))
    torch.testing.assert_close((windows > 0).sum(0), torch.ones(35, dtype=torch.int64))


def test_transformer_gives_the_numbers_of_the_module():
    images = (255 * some_images(600, 3, 12, 12).permute(0, 2, 3, 1)).byte().numpy()
    transformer = PatchFeatures(200, sizes=(3, 4), random_state=3).fit(images)
    expected = transformer.module_(as_images(images))
    np.testing.assert_array_equal(transformer.transform(images), expected.numpy())
    again = PatchFeatures(200, sizes=(3, 4), random_state=3).fit(images)
    np.testing.assert_array_equal(again.transform(images), expected.numpy())


def test_layouts_of_images_agree():
    images = (255 * some_images(5, 1, 6, 6)[:, 0]).byte().numpy()
    expected = as_images(images)
    assert expected.shape == (5, 1, 6, 6)
    torch.testing.assert_close(as_images(images[..., None]), expected)
    torch.testing.assert_close(as_images(images.reshape(5, 36), (6, 6)), expected)
    torch.testing.assert_close(as_images(images / 255.0), expected)
    torch.testing.assert_close(as_images(images[:, None]), expected)


@pytest.mark.parametrize(
    ("array", "shape", "message"),
    [
        (np.zeros((4, 10)), None, "need image_shape"),
        (np.zeros((4, 10)), (3, 3), "rows have 10 values, but image_shape"),
        (np.zeros((4, 2, 2, 2, 2)), None, "got \\(4, 2, 2, 2, 2\\)"),
        (np.array([None, 1]), None, "must be numbers"),
        (np.full((1, 4, 4), np.nan), None, "NaN or infinity"),
    ],
)
def test_arrays_that_are_not_images_are_refused(array, shape, message):
    with pytest.raises(ValueError, match=message):
        as_images(array, shape)


@pytest.mark.parametrize(
    ("images", "options", "message"),
    [
        (torch.zeros(5, 1, 8, 8), {}, "flat"),
        (torch.rand(5, 1, 8, 8), {"size": 9}, "smaller than the patches"),
        (torch.rand(5, 1, 8, 8), {"grid": 7}, "finer than"),
        (torch.rand(5, 1, 8, 8), {"open_fraction": 1.0}, "open_fraction"),
        (torch.rand(5, 1, 8, 8), {"copies": 99}, "copies"),
        (torch.rand(5, 1, 8, 8), {"pool": "sum"}, "pool"),
        (torch.rand(5, 1, 8, 8), {"gates_from": "thin air"}, "gates_from"),
        (torch.rand(0, 1, 8, 8), {}, "no images"),
    ],
)
def test_settings_that_do_not_fit_are_refused(images, options, message):
    with pytest.raises(ValueError, match=message):
        learn_patch_features(images, **{"gates": 4, "size": 3, **options})


def test_images_of_another_size_are_refused():
    module = learn_patch_features(torch.rand(5, 3, 8, 8), gates=4, size=3)
    with pytest.raises(ValueError, match="size 1 on axis 1 \\(channels\\), expected 3"):
        module(torch.rand(5, 1, 8, 8))


def test_default_patch_sizes():
    sides = (2, 3, 8, 28, 32, 48)
    expected = [(2,), (2, 3), (2, 3, 4), (4, 6, 9), (4, 6, 10), (6, 10, 15)]
    assert [default_patch_sizes(s, s) for s in sides] == expected


def test_bank_joins_the_features_of_each_size():
    images = some_images(30, height=12, width=12)
    bank = learn_patch_bank(images, features=330, sizes=(3, 5), grid=2)
    assert bank.out_features == 328  # 41 gates, 4 windows, score and constant
    expected = torch.cat([part(images) for part in bank.parts], dim=1)
    torch.testing.assert_close(bank(images), expected, rtol=0, atol=0)
    assert [part.size for part in bank.parts] == [3, 5]


def test_large_images_are_reduced():
    images = some_images(4, height=100, width=80)
    bank = learn_patch_bank(images, features=100)
    small = F.avg_pool2d(images, 3)
    again = learn_patch_bank(small, features=100)
    torch.testing.assert_close(bank(images), again(small))


def test_too_few_features_are_refused():
    with pytest.raises(ValueError, match="too few"):
        learn_patch_bank(some_images(), features=8)


def test_an_offset_of_the_images_does_not_change_their_features():
    """As in thermal images in kelvin, where differences are small."""
    images = 0.05 * torch.rand(60, 1, 12, 12, generator=torch.Generator().manual_seed(0))
    bank = learn_patch_bank(images + 300, features=200)
    exact = bank.double()(images.double() + 300)
    found = bank.float()(images + 300)
    assert float((found - exact).norm() / exact.norm()) < 0.05


@pytest.mark.parametrize(
    ("shape", "expected"), [((30, 40), (30, 40)), ((60, 100), (20, 33)), ((8, 480), (8, 48))]
)
def test_large_images_are_reduced_to_what_can_be_seen(shape, expected):
    images = torch.rand(20, 1, *shape, generator=torch.Generator().manual_seed(0))
    assert reduced(images).shape[2:] == expected
    bank = learn_patch_bank(images, features=100)
    weight = torch.ones(bank.out_features, 1)
    shares = pixel_shares(bank, images, weight)
    assert shares.shape[2:] == shape
    torch.testing.assert_close(shares.sum((2, 3)), bank(images) @ weight, rtol=1e-3, atol=1e-3)


def test_the_transformer_names_its_features():
    pandas = pytest.importorskip("pandas")
    images = some_images(channels=1)[:, 0].numpy()
    transformer = PatchFeatures(64, grid=1).set_output(transform="pandas").fit(images)
    found = transformer.transform(images[:3])
    assert isinstance(found, pandas.DataFrame)
    assert found.shape == (3, transformer.n_features_out_)
    assert found.columns[0] == "patchfeatures0"
    assert transformer.n_features_in_ == 11 * 9


def test_the_transformer_refuses_another_range_of_pixels():
    images = (255 * some_images(channels=1)[:, 0].numpy()).astype(np.uint8)
    transformer = PatchFeatures(64, grid=1).fit(images)
    np.testing.assert_allclose(
        transformer.transform(images), transformer.transform(images / 255.0), atol=1e-4
    )
    with pytest.raises(ValueError, match="but the model was fitted to bytes"):
        transformer.transform(images.astype(float))


def test_copies_may_be_a_number_of_numpy():
    images = some_images()
    module = learn_patch_features(images, gates=5, size=3, components=4, copies=np.int64(2))
    assert module(images).shape == (20, module.out_features)
    assert type(module.copies) is int


def test_a_bank_is_saved_with_its_settings(tmp_path):
    images = some_images()
    bank = learn_patch_bank(images, features=64, sizes=(3, 4), grid=1, pool="max", copies=2)
    save(bank, tmp_path / "bank")
    assert torch.equal(load(tmp_path / "bank", PatchBank2d)(images), bank(images))


def test_a_damaged_shape_does_not_allocate_more_than_the_file_holds(tmp_path):
    def enlarge(header):
        [part] = header["value"]["state"]["parts"]
        part["state"]["image_shape"] = {"tuple": [2, 10**6, 10**6]}

    save(learn_patch_bank(some_images(), features=64, sizes=(3,), grid=1), tmp_path / "bank")
    rewritten(tmp_path / "bank", enlarge)
    with pytest.raises(ValueError, match="windows has size"):
        load(tmp_path / "bank")


def test_flat_patches_need_no_floor():
    images = some_images(30)
    images[:, :, :, :5] = 0.5
    module = learn_patch_features(images, gates=5, size=3, floor=0.0)
    assert module.floor == 0
    assert module(images).isfinite().all()
