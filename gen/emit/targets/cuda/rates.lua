-- rates: how fast a device of the class of NVIDIA's H100 and H200 works: coarse, only for predicted times and for what
-- gagen chooses by them.
--
-- flops      of an H200 (SXM) by its data sheet, in multiply-adds of each type; types of 16 bits are computed in f32
-- matrix     of products and attention on tensor cores: 40 % of the 989e12 of its data sheet. The instructions of sm_80
--            reach about 60 % of that rate there. At that speed tiles of 128 x 256 would ask the cache for 7e12 bytes
--            per second, more than the 5.5e12 that it gives.
-- twin       of products with a twin for sm_90 (hopper.lua): a slice of its tiles of 128 x 256 takes 49152 bytes from
--            the cache for 4.2e6 operations, and the cache gives 5.5e12 bytes per second. No start on a device has
--            measured one yet.
-- cluster    of twins in clusters of two: the columns of a slice are copied once for both tiles, so each takes 32768
--            bytes. It is less than the 788e12 that large products reach on an H200.
-- attends    of attention with a twin: for each pair of a query and a key a multiprocessor takes as long for the
--            exponential, of which it has 16 in a clock, as for the 256 operations of a head of 64 elements at the rate
--            of the data sheet. The half of that rate is what is left if nothing runs beside each other.
-- gradient   of attention's gradient on tensor cores: `matrix`, but seven products are computed where five are counted,
--            those of the scores and of dy with the values being there twice
-- walks      of attention's gradient with a twin: for a pair of a head of 64 elements 896 operations of seven products
--            take 0.22 clocks of a multiprocessor at the rate of the data sheet, two exponentials 0.13, two times six
--            other instructions 0.1. 646 operations are counted: that is left if nothing runs beside each other.
-- bytes      per second: 90 % of the 4.8e12 of its data sheet, as copies reach
-- link       bytes per second between host and device: 80 % of the 63e9 of sixteen lanes of PCIe 5.0
-- call_us    between two nodes of a graph
local RATES = { f32 = 67e12, f64 = 34e12, matrix = 400e12, twin = 470e12, cluster = 704e12, attends = 490e12,
    gradient = 280e12, walks = 350e12, bytes = 4.3e12, link = 50e9, call_us = 1.2 }

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
