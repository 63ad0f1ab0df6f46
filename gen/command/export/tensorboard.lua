-- tensorboard: the updates and evaluations of a run as a file that TensorBoard reads: records of messages `Event`.
--
--   record = length of the message: 8 bytes; its checksum; the message; its checksum
--   Event  = wall_time: double = 1, step: integer = 2, file_version: text = 3, summary: Summary = 5
--   Summary = value: Value = 1, repeated;  Value = tag: text = 1, simple_value: float = 2
--
-- A checksum is CRC-32C, turned by 15 bits to the right, plus a constant.
local protobuf = require "command.export.protobuf"

local POLYNOMIAL, MASK, WORD = 0x82f63b78, 0xa282ead8, 0xffffffff

local crc_of_byte = {}
for byte = 0, 255 do
    local crc = byte
    for _ = 1, 8 do crc = crc >> 1 ~ (crc & 1) * POLYNOMIAL end
    crc_of_byte[byte] = crc
end

local function checksum(text)
    local crc = WORD
    for i = 1, #text do crc = crc >> 8 ~ crc_of_byte[(crc ~ text:byte(i)) & 255] end
    crc = crc ~ WORD
    return string.pack("<I4", ((crc >> 15 | crc << 17) & WORD) + MASK & WORD)
end

local function record(message)
    local length = string.pack("<I8", #message)
    return length .. checksum(length) .. message .. checksum(message)
end

local PREFIX = { update = "train/", eval = "eval/" }

-- Fields that are no curve: the step itself, and what has no number.
local NO_CURVE = { event = true, cycle = true, split = true, best = true }

local NOT_FINITE = { nan = 0 / 0, inf = math.huge, ["-inf"] = -math.huge }

local function summary(event)
    local values, prefix = {}, PREFIX[event:get "event"]
    for name, text in event:each() do
        local number = NOT_FINITE[text] or tonumber(text)
        if number and not NO_CURVE[name] then
            values[#values + 1] = protobuf.bytes(1, protobuf.bytes(1, prefix .. name) .. protobuf.float(2, number))
        end
    end
    return table.concat(values)
end

--- The bytes of the file. events: the result of log.events; start: seconds since 1970 at which the run began. The step
--- of an event is its cycle. Its time is the start plus the times of the cycles before, each as long as the last one
--- that was logged.
return function(events, start)
    local parts = { record(protobuf.double(1, start) .. protobuf.bytes(3, "brain.Event:2")) }
    local time, last = start, 0
    for i, event in ipairs(events) do
        local cycle = math.tointeger(tonumber(event:get "cycle"))
        time = time + (cycle - last) * (tonumber(event:get "ms") or 0) / 1000
        last = cycle
        parts[i + 1] = record(protobuf.double(1, time) .. protobuf.integer(2, cycle)
            .. protobuf.bytes(5, summary(event)))
    end
    return table.concat(parts)
end
