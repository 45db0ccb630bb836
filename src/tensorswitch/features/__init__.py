"""Patch features of images: the copies that a convolutional TS layer sends to windows.

    p(u) = Lᵀ (n(u) − μ)                          normalised, whitened patch at position u
    h_j(u) = H(w_j · p(u) − θ_j)                  gates, open for a fixed share of the patches
    f_wj = mean_{u ∈ w} h_j(u) c_j(u)             copies c_j, averaged over the window w
    φ = sign(f) |f|^a

A linear readout of ``f`` is a switched linear map whose routes lead from patches to windows, so it
can be solved in closed form (:class:`tensorswitch.estimators.TSConvRidgeClassifier`).

:class:`PatchFeatures2d` computes the features of one patch size, as a torch module, and
:class:`PatchBank2d` those of several sizes. :func:`learn_patch_bank` learns them from images.
:class:`PatchFeatures` is the scikit-learn transformer with the same numbers.

References
----------
Coates, Lee and Ng, An Analysis of Single-Layer Networks in Unsupervised Feature Learning, AISTATS
2011 (whitened patches, clusters and pooling).
"""

from tensorswitch.features._bank import PatchBank2d, learn_patch_bank
from tensorswitch.features._images import as_images
from tensorswitch.features._images import channels_first as channels_first
from tensorswitch.features._images import check_pixels as check_pixels
from tensorswitch.features._images import pixel_range as pixel_range
from tensorswitch.features._images import reduced as reduced
from tensorswitch.features._learning import default_patch_sizes as default_patch_sizes
from tensorswitch.features._learning import learn_patch_features as learn_patch_features
from tensorswitch.features._module import PatchFeatures2d
from tensorswitch.features._shares import pixel_shares as pixel_shares
from tensorswitch.features._transformer import PatchFeatures

__all__ = ["PatchBank2d", "PatchFeatures", "PatchFeatures2d", "as_images", "learn_patch_bank"]
