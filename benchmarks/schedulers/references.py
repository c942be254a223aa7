"""Figures of the public simulators, run unmodified unless stated otherwise, or printed by their authors.

Muri: Rivendile/Muri, commit 4e69a78; Lucid: S-Lab-System-Group/Lucid, 63685a3; Synergy: msr-fiddle/synergy,
1bb2bed. Times are theirs, on a machine with two cores under load: they show the order of
magnitude.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Reference:
    """Seconds; None: unknown. `took_s` is the run time of the public simulator."""

    avg_jct_s: float
    makespan_s: float | None = None
    p99_jct_s: float | None = None
    took_s: float | None = None


MURI_PRINTED: dict[tuple[str, str], Reference] = {
    ("trace1", "muri-replica:srtf"): Reference(1_370_603.2, 26_045_465.53, 16_647_148.09, 3),
    ("trace1", "muri-replica:srsf"): Reference(980_140.57, 26_065_759.04, 15_529_913.23),
    ("trace1", "muri-replica:tiresias"): Reference(3_330_371.31, 23_556_410.22, 14_739_851.51, 10),
    ("trace1", "muri-replica:antman"): Reference(5_476_391.32, 21_788_668.55, 13_690_482.49, 45),
    ("trace1", "muri-replica:muri-s-keep"): Reference(867_705.79, 18_446_535.22, 10_618_148.3),
    ("trace1", "muri-replica:muri-l-keep"): Reference(1_072_009.71, 18_593_245.71, 11_322_989.64),
    ("trace1_pr", "muri-replica:srtf"): Reference(2_303_543.82, 24_513_543.94, 19_871_388.29),
    ("trace1_pr", "muri-replica:srsf"): Reference(1_801_860.0, 24_272_529.59, 18_267_307.81),
    ("trace1_pr", "muri-replica:tiresias"): Reference(6_921_682.79, 21_990_477.82, 21_765_400.78),
    ("trace1_pr", "muri-replica:antman"): Reference(9_808_250.68, 20_285_085.62, 20_130_532.65),
    ("trace1_pr", "muri-replica:muri-s-keep"): Reference(1_467_191.91, 16_596_420.78, 13_395_942.72),
    ("trace1_pr", "muri-replica:muri-l-keep"): Reference(2_141_936.54, 16_639_500.39, 13_214_336.41),
    ("trace2", "muri-replica:srtf"): Reference(2_665_607.38, 48_847_005.2, 33_128_484.2),
    ("trace2", "muri-replica:srsf"): Reference(2_213_949.69, 49_026_465.31, 31_241_250.84),
    ("trace2", "muri-replica:tiresias"): Reference(7_396_368.51, 48_117_093.31, 37_913_098.47),
    ("trace2", "muri-replica:antman"): Reference(15_647_814.62, 48_176_959.25, 38_571_847.99),
    ("trace2", "muri-replica:muri-s-keep"): Reference(1_342_400.02, 34_163_947.02, 19_994_293.57),
    ("trace2", "muri-replica:muri-l-keep"): Reference(2_544_642.35, 32_826_803.05, 22_192_059.13),
    ("trace2_pr", "muri-replica:srtf"): Reference(4_079_154.45, 48_697_595.0, 36_640_840.0),
    ("trace2_pr", "muri-replica:srsf"): Reference(3_384_600.44, 47_972_347.55, 34_656_644.08),
    ("trace2_pr", "muri-replica:tiresias"): Reference(10_555_502.04, 47_686_997.56, 44_369_455.22),
    ("trace2_pr", "muri-replica:antman"): Reference(18_163_389.28, 48_327_650.12, 45_081_678.61),
    ("trace2_pr", "muri-replica:muri-s-keep"): Reference(2_325_962.04, 32_250_093.33, 23_106_016.89),
    ("trace2_pr", "muri-replica:muri-l-keep"): Reference(4_152_485.54, 31_782_578.76, 24_767_218.77),
    ("trace3", "muri-replica:srtf"): Reference(193_081.8, 8_174_135.28, 4_538_890.61, 3.7),
    ("trace3", "muri-replica:srsf"): Reference(185_021.88, 8_174_135.28, 4_189_699.18, 3.7),
    ("trace3", "muri-replica:tiresias"): Reference(347_213.25, 8_174_226.28, 4_983_397.25, 3.9),
    ("trace3", "muri-replica:antman"): Reference(305_453.94, 8_174_140.28, 3_904_420.79, 4.1),
    ("trace3", "muri-replica:muri-s-keep"): Reference(85_502.55, 8_174_135.28, 992_405.06, 53),
    ("trace3_pr", "muri-replica:srtf"): Reference(844_394.78, 7_261_795.83, 6_363_099.55, 5),
    ("trace3_pr", "muri-replica:srsf"): Reference(798_057.68, 6_907_790.4, 6_228_160.59, 7),
    ("trace3_pr", "muri-replica:tiresias"): Reference(2_213_110.13, 6_761_641.42, 6_739_569.0, 8),
    ("trace3_pr", "muri-replica:antman"): Reference(2_674_393.02, 5_799_634.74, 5_772_254.91, 8),
    ("trace3_pr", "muri-replica:muri-s-keep"): Reference(537_776.62, 4_400_674.99, 4_105_513.66),
    ("trace3_pr", "muri-replica:muri-l-keep"): Reference(921_094.74, 4_403_652.2, 4_167_478.35),
    ("trace4", "muri-replica:srtf"): Reference(581_982.9, 14_787_990.59, 7_768_533.0),
    ("trace4", "muri-replica:srsf"): Reference(487_167.17, 14_887_908.87, 7_372_568.18),
    ("trace4", "muri-replica:tiresias"): Reference(1_319_382.94, 13_073_838.62, 8_663_311.86),
    ("trace4", "muri-replica:antman"): Reference(2_212_462.72, 12_292_270.74, 6_438_230.8),
    ("trace4", "muri-replica:muri-s-keep"): Reference(365_467.89, 11_029_124.28, 3_734_840.82),
    ("trace4", "muri-replica:muri-l-keep"): Reference(429_174.87, 10_918_239.07, 4_719_318.3),
    ("trace4_pr", "muri-replica:srtf"): Reference(1_430_856.45, 14_272_665.01, 9_443_500.2),
    ("trace4_pr", "muri-replica:srsf"): Reference(1_218_501.97, 14_426_755.37, 9_227_908.33),
    ("trace4_pr", "muri-replica:tiresias"): Reference(2_674_022.64, 12_584_603.56, 11_219_877.95),
    ("trace4_pr", "muri-replica:antman"): Reference(4_676_092.8, 11_793_469.43, 9_940_651.79),
    ("trace4_pr", "muri-replica:muri-s-keep"): Reference(954_225.29, 9_990_192.51, 6_575_927.93),
    ("trace4_pr", "muri-replica:muri-l-keep"): Reference(1_488_033.6, 10_104_721.76, 6_383_955.68),
    ("trace1", "muri-replica:muri-l-worst"): Reference(1_482_465.08, 21_797_275.5),
    ("trace1", "muri-replica:muri-l-in-order"): Reference(1_192_784.96, 19_653_377.91),
    ("trace2", "muri-replica:muri-l-worst"): Reference(3_274_256.09, 38_550_614.78),
    ("trace2", "muri-replica:muri-l-in-order"): Reference(2_771_637.97, 34_035_577.29),
    ("trace3", "muri-replica:muri-l-worst"): Reference(146_324.41, 8_174_135.28),
    ("trace3", "muri-replica:muri-l-in-order"): Reference(96_016.95, 8_174_135.28),
    ("trace4", "muri-replica:muri-l-worst"): Reference(614_727.47, 11_968_562.6),
    ("trace4", "muri-replica:muri-l-in-order"): Reference(487_577.64, 11_323_021.72),
    ("trace1_pr", "muri-replica:muri-l-2-keep"): Reference(2_624_732.58, 18_845_825.64),
    ("trace1_pr", "muri-replica:muri-l-3-keep"): Reference(2_738_962.21, 17_773_101.83),
    ("trace2_pr", "muri-replica:muri-l-2-keep"): Reference(5_243_437.38, 36_514_321.55),
    ("trace2_pr", "muri-replica:muri-l-3-keep"): Reference(5_078_885.54, 36_971_546.42),
    ("trace3_pr", "muri-replica:muri-l-2-keep"): Reference(1_348_968.42, 5_244_800.59),
    ("trace3_pr", "muri-replica:muri-l-3-keep"): Reference(1_242_056.65, 5_175_874.98),
    ("trace4_pr", "muri-replica:muri-l-2-keep"): Reference(2_170_262.14, 11_141_527.95),
    ("trace4_pr", "muri-replica:muri-l-3-keep"): Reference(1_994_350.66, 10_836_071.39),
    ("job_type_1", "muri-replica:srtf"): Reference(192_543.86),
    ("job_type_1", "muri-replica:tiresias"): Reference(346_383.42),
    ("job_type_1", "muri-replica:muri-s"): Reference(182_804.02),
    ("job_type_2", "muri-replica:srtf"): Reference(192_494.57),
    ("job_type_2", "muri-replica:tiresias"): Reference(346_280.51),
    ("job_type_2", "muri-replica:muri-s"): Reference(135_643.09),
    ("job_type_2", "muri-replica:muri-l"): Reference(233_034.52),
    ("job_type_3", "muri-replica:srtf"): Reference(192_277.99),
    ("job_type_3", "muri-replica:tiresias"): Reference(345_883.85),
    ("job_type_3", "muri-replica:muri-s"): Reference(90_861.63),
    ("job_type_3", "muri-replica:muri-l"): Reference(101_383.35),
}
"""Numbers of Muri's authors for figures 9 to 13, by trace and policy, where the code still prints them."""

MURI_RUN: dict[tuple[str, str], Reference] = {
    ("trace3", "muri-replica:muri-s"): Reference(83_242.46, 8_174_135, 947_437, 75),
    ("trace3", "muri-replica:muri-l"): Reference(88_686.97, 8_174_135, 926_787, 70),
    ("trace3_pr", "muri-replica:muri-s"): Reference(540_358, 4_495_394, 3_948_554, 583),
    ("trace3_pr", "muri-replica:muri-l"): Reference(913_980, 4_351_395, 4_032_449, 617),
    ("job_type_1", "muri-replica:muri-l"): Reference(502_169.96, 8_174_169.62, 5_860_070.25),
    ("job_type_1", "muri-replica:muri-l-keep"): Reference(818_699.45, 8_621_380.84, 6_860_034.95),
    ("c1000", "muri-replica:srtf"): Reference(19_137, 921_712, 387_316, 5),
    ("c1000", "muri-replica:srsf"): Reference(19_037, 934_478, 403_854, 4),
    ("c1000", "muri-replica:tiresias"): Reference(25_563, 943_856, 356_771, 5),
    ("c1000", "muri-replica:antman"): Reference(91_099, 947_685, 448_495, 7),
    ("c1000", "muri-replica:muri-s"): Reference(20_204, 738_523, 228_715, 585),
    ("c1000", "muri-replica:muri-l"): Reference(20_102, 724_109, 227_596, 382),
    ("sample", "muri-replica:srtf"): Reference(6_380.26, 51_192.78, 42_882.78),
    ("sample", "muri-replica:srsf"): Reference(6_632.83, 48_584.44, 40_274.44),
    ("sample", "muri-replica:tiresias"): Reference(8_562.86, 46_557.17, 44_787.47),
    ("sample", "muri-replica:antman"): Reference(24_135.19, 80_198.17, 69_832.17),
    ("sample", "muri-replica:muri-s-keep"): Reference(8_370.04, 44_385.85, 41_396.96),
    ("sample", "muri-replica:muri-s"): Reference(8_288.27, 43_928.76, 42_999.76),
    ("sample", "muri-replica:muri-l"): Reference(8_463.55, 43_543.32, 40_329.46),
}
"""Figures printed by their code here; ``sample`` is the shipped trace, on two nodes of eight GPUs."""

MURI = {**MURI_PRINTED, **MURI_RUN}

SYNERGY: dict[tuple[str, str], Reference] = {
    ("philly-derived", "fifo+tune"): Reference(21.8766 * 3600, None, 156.9331 * 3600, 374),
    ("philly-derived", "fifo+fair"): Reference(81.089 * 3600, None, 214.61 * 3600, 276),
    ("static", "fifo+fair"): Reference(20_271.95, 54_901, 46_584.907, 0.40),
    ("static", "fifo+greedy"): Reference(19_779.95, 44_401, 42_321.904, 0.32),
    ("static", "fifo+tune"): Reference(18_297.95, 39_601, 38_115.904, 0.38),
    ("static", "fifo+opt"): Reference(16_782.95, 38_101, 36_318.904, 18.89),
    ("static", "ftf+fair"): Reference(28_737.951, 35_101, 35_100.989, 0.32),
    ("static", "ftf+greedy"): Reference(29_145.95, 38_101, 37_803.996, 0.36),
    ("static", "ftf+tune"): Reference(27_999.951, 33_901, 33_900.91, 0.48),
    ("static", "drf+fair"): Reference(19_317.95, 51_901, 51_306.934, 0.32),
    ("static", "drf+greedy"): Reference(20_013.95, 47_101, 43_833.907, 0.32),
    ("static", "drf+tune"): Reference(17_997.95, 39_001, 37_812.934, 0.37),
    ("static", "tetris+fair"): Reference(16_281.95, 48_901, 47_415.943, 0.34),
    ("static", "tetris+greedy"): Reference(13_794.951, 45_901, 42_930.936, 0.29),
    ("static", "tetris+tune"): Reference(14_007.95, 40_801, 36_048.936, 0.37),
    ("dynamic", "srtf+fair"): Reference(14_064.26, 70_200, 51_089.24, 0.42),
    ("dynamic", "srtf+greedy"): Reference(11_637.26, 50_100, 41_670.82, 0.32),
    ("dynamic", "srtf+tune"): Reference(11_478.26, 47_700, 36_964.06, 0.35),
    ("dynamic", "srtf+opt"): Reference(11_133.26, 46_500, 36_946.06, 19.19),
    ("c1000", "fifo+fair"): Reference(82_004.906, 893_400, 278_062.43, 6.52),
    ("c1000", "fifo+greedy"): Reference(80_758.406, 899_100, 283_408.98, 7.64),
    ("c1000", "fifo+tune"): Reference(78_644.906, 886_800, 270_830.75, 7.29),
    ("c1000", "srtf+fair"): Reference(17_765.906, 887_700, 368_929.94, 6.44),
    ("c1000", "srtf+greedy"): Reference(16_422.506, 909_600, 378_025.31, 6.46),
    ("c1000", "srtf+tune"): Reference(16_202.306, 888_000, 352_767.88, 7.31),
    ("c1000", "las+fair"): Reference(32_700.806, 856_800, 588_334.27, 9.36),
    ("c1000", "las+greedy"): Reference(30_543.806, 868_800, 600_334.27, 6.11),
    ("c1000", "las+tune"): Reference(31_701.806, 846_300, 577_834.27, 7.07),
    ("c1000", "ftf+fair"): Reference(206_594.306, 843_000, 662_154.25, 10.65),
    ("c1000", "ftf+greedy"): Reference(62_568.506, 863_400, 689_258.83, 11.68),
    ("c1000", "ftf+tune"): Reference(118_355.606, 840_600, 653_567.39, 12.66),
    ("c1000", "drf+fair"): Reference(24_821.006, 915_600, 291_397.55, 6.22),
    ("c1000", "drf+greedy"): Reference(25_914.206, 926_700, 305_310.08, 6.38),
    ("c1000", "drf+tune"): Reference(22_535.906, 903_300, 276_460.23, 7.01),
    ("c1000", "tetris+fair"): Reference(17_701.106, 892_800, 368_398.07, 6.28),
    ("c1000", "tetris+greedy"): Reference(16_326.506, 909_600, 381_907.91, 6.08),
    ("c1000", "tetris+tune"): Reference(15_846.206, 885_900, 346_870.07, 6.68),
}
"""By workload (`benchmarks.schedulers.reproduce.WORKLOADS`) and policy.

The public simulator calls `greedy` by the order's name alone. Its times on the replays are without
its statistics of use and its plots: with these it took 1.1 to 1.4 s for 100 jobs and 25 to 34 s for c1000.
OPT ran with HiGHS instead of a GLPK that does not end, and takes the nearest point of the grid where the
solver is off by rounding. Replays, which end there at the first round without a job, were made to continue.
"""

LUCID: dict[str, Reference] = {
    "fifo": Reference(127_493, 954_596, 335_026, 60),
    "sjf": Reference(26_583, 907_352, 337_385, 35),
    "srtf": Reference(18_987, 947_131, 370_924, 47),
    "qssf": Reference(23_717, 959_631, 450_247, 48),
    "tiresias": Reference(27_935, 929_741, 316_353, 21),
    "lucid": Reference(20_568, 896_924, 398_026, 64),
}
"""The trace c1000, 64 GPUs."""
