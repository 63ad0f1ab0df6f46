-- rates: how fast a device of the class of NVIDIA's H100 and H200 works: coarse, only for predicted times and for what
-- gagen chooses by them. Those marked (*) are rates that kernels of `make bench-gpu` reached on an H200, in bf16
-- (bench/results/nvidia-h200), summed over kernels of each kind; the others are of its data sheet.
--
-- flops      of an H200 (SXM), in multiply-adds of each type; types of 16 bits are computed in f32
-- matrix     (*) of products, convolutions and attention on tensor cores by the instructions of sm_80
-- twin       of products with a twin for sm_90 (hopper.lua) whose blocks have no cluster: as slow beside `cluster` as
--            the cache makes them, which gives 5.5e12 bytes per second: a slice of a tile of 128 x 256 takes 49152
--            bytes for 4.2e6 operations, in clusters of two 32768
-- cluster    (*) of twins in clusters of two, with what stands beside their sums and the sums of gradients: large ones
--            reach 780e12, where power limits them, those of 768 terms a half of that
-- attends    (*) of attention with a twin
-- gradient   of attention's gradient by the instructions of sm_80: seven products are computed where five are counted
-- walks      (*) of attention's gradient with a twin
-- bytes      (*) per second, of kernels of rows; copies reach 4.3e12
-- link       bytes per second between host and device: 80 % of the 63e9 of sixteen lanes of PCIe 5.0
-- call_us    (*) between two nodes of a graph, with the microseconds that the smallest kernel takes
local RATES = { f32 = 67e12, f64 = 34e12, matrix = 300e12, twin = 360e12, cluster = 540e12, attends = 235e12,
    gradient = 150e12, walks = 202e12, bytes = 3.7e12, link = 50e9, call_us = 3 }

-- Peaks of a device by its data sheet (SXM): multiply-adds in f32, products of 16 bits on tensor cores
-- (dense), bytes per second. The floors of `make bench-gpu` follow from these.
local PEAKS = { H100 = { f32 = 67e12, half = 989e12, bytes = 3.35e12 },
    H200 = { f32 = 67e12, half = 989e12, bytes = 4.8e12 } }

local rates = {}

--- The peaks { f32, half, bytes } of a device by its name; nil for one of another class.
function rates.peaks(name) return PEAKS[name:match "H[12]00"] end

--- The rates for a type of real numbers, as a profile has them, with the time that a call adds.
function rates.of(real)
    return { flops = RATES[real], matrix_flops = RATES.matrix, twin_flops = RATES.twin,
        cluster_flops = RATES.cluster, attends = RATES.attends, gradient = RATES.gradient, walks = RATES.walks,
        bytes = RATES.bytes, link_bytes = RATES.link, call_us = RATES.call_us, like = "a device like an H200" }
end

return rates
