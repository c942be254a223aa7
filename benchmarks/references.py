"""Figures of the public simulators, run unmodified, and what their authors print: what ours are set beside.

Muri: Rivendile/Muri, commit 4e69a78; Lucid: S-Lab-System-Group/Lucid, 63685a3; Synergy: msr-fiddle/synergy,
1bb2bed. Times are theirs, on another machine than a reader's, two cores under load: they tell the order of
magnitude.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Reference:
    """Seconds; None: unknown. `took_s` is what the public simulator took for it."""

    avg_jct_s: float
    makespan_s: float | None = None
    p99_jct_s: float | None = None
    took_s: float | None = None


MURI: dict[tuple[str, str], Reference] = {
    ("trace3", "coded:srtf"): Reference(193_081.80, 8_174_135, 4_538_891, 3.7),
    ("trace3", "coded:srsf"): Reference(185_021.88, 8_174_135, 4_189_699, 3.7),
    ("trace3", "coded:tiresias"): Reference(347_213.25, 8_174_226, 4_983_397, 3.9),
    ("trace3", "coded:antman"): Reference(305_453.94, 8_174_140, 3_904_421, 4.1),
    ("trace3", "coded:muri-s-keep"): Reference(85_502.55, 8_174_135, 992_405, 53),
    ("trace3", "coded:muri-s"): Reference(83_242.46, 8_174_135, 947_437, 75),
    ("trace3", "coded:muri-l"): Reference(88_686.97, 8_174_135, 926_787, 70),
    ("trace3", "coded:muri-l-worst"): Reference(146_324),
    ("trace3", "coded:muri-l-in-order"): Reference(96_017),
    ("trace3_pr", "coded:srtf"): Reference(844_395, 7_261_796, 6_363_100, 5),
    ("trace3_pr", "coded:srsf"): Reference(798_058, 6_907_790, 6_228_161, 7),
    ("trace3_pr", "coded:tiresias"): Reference(2_213_110, 6_761_641, 6_739_569, 8),
    ("trace3_pr", "coded:antman"): Reference(2_674_393, 5_799_635, 5_772_255, 8),
    ("trace3_pr", "coded:muri-s"): Reference(540_358, 4_495_394, 3_948_554, 583),
    ("trace3_pr", "coded:muri-l"): Reference(913_980, 4_351_395, 4_032_449, 617),
    ("trace1", "coded:srtf"): Reference(1_370_603, 26_045_466, 16_647_148, 3),
    ("trace1", "coded:tiresias"): Reference(3_330_371, 23_556_410, 14_739_852, 10),
    ("trace1", "coded:antman"): Reference(5_476_391, 21_788_669, 13_690_482, 45),
    ("c1000", "coded:srtf"): Reference(19_137, 921_712, 387_316, 5),
    ("c1000", "coded:srsf"): Reference(19_037, 934_478, 403_854, 4),
    ("c1000", "coded:tiresias"): Reference(25_563, 943_856, 356_771, 5),
    ("c1000", "coded:antman"): Reference(91_099, 947_685, 448_495, 7),
    ("c1000", "coded:muri-s"): Reference(20_204, 738_523, 228_715, 585),
    ("c1000", "coded:muri-l"): Reference(20_102, 724_109, 227_596, 382),
    ("sample", "coded:srtf"): Reference(6_380.26, 51_192.78, 42_882.78),
    ("sample", "coded:srsf"): Reference(6_632.83, 48_584.44, 40_274.44),
    ("sample", "coded:tiresias"): Reference(8_562.86, 46_557.17, 44_787.47),
    ("sample", "coded:antman"): Reference(24_135.19, 80_198.17, 69_832.17),
    ("sample", "coded:muri-s-keep"): Reference(8_370.04, 44_385.85, 41_396.96),
    ("sample", "coded:muri-s"): Reference(8_288.27, 43_928.76, 42_999.76),
    ("sample", "coded:muri-l"): Reference(8_463.55, 43_543.32, 40_329.46),
}
"""By trace and policy; ``sample`` is the trace that the tests ship, on two nodes of eight GPUs."""

SYNERGY: dict[str, Reference] = {
    "fifo+tune": Reference(21.877 * 3600, None, 156.933 * 3600, 374),
    "fifo+fair": Reference(81.089 * 3600, None, 214.61 * 3600, 276),
}
"""Philly-derived workload, 128 GPUs, 9 jobs per hour."""

LUCID: dict[str, Reference] = {
    "fifo": Reference(127_493, 954_596, 335_026, 60),
    "sjf": Reference(26_583, 907_352, 337_385, 35),
    "srtf": Reference(18_987, 947_131, 370_924, 47),
    "qssf": Reference(23_717, 959_631, 450_247, 48),
    "tiresias": Reference(27_935, 929_741, 316_353, 21),
    "lucid": Reference(20_568, 896_924, 398_026, 64),
}
"""The trace c1000, 64 GPUs."""
