-- rates: how fast a device of the class of NVIDIA's H100 and H200 works: coarse, only for predicted times and for what
-- gagen chooses by them. Kernels multiply and add without tensor cores.
--
-- flops      of an H200 (SXM) by its data sheet, in multiply-adds of each type; types of 16 bits are computed in f32
-- bytes      per second: 90 % of the 4.8e12 of its data sheet, as copies reach
-- call_us    between two nodes of a graph
local RATES = { f32 = 67e12, f64 = 34e12, bytes = 4.3e12, call_us = 1.2 }

local rates = {}

--- The rates for a type of real numbers, as a profile has them, with the time that a call adds.
function rates.of(real)
    return { flops = RATES[real], bytes = RATES.bytes, call_us = RATES.call_us, like = "a device like an H200" }
end

return rates
