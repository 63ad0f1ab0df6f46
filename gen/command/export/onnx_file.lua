-- onnx_file: the messages of an ONNX file and a builder that collects their parts. Numbers of fields, as onnx.proto has
-- them:
--
--   ModelProto  ir_version 1, producer_name 2, producer_version 3, graph 7, opset_import 8 (version 2)
--   GraphProto  node 1, name 2, initializer 5, input 11, output 12
--   NodeProto   input 1, output 2, name 3, op_type 4, attribute 5
--   AttributeProto  name 1, f 2, i 3, ints 8, type 20
--   TensorProto dims 1, data_type 2, name 8, raw_data 9
--   ValueInfoProto  name 1, type 2 (tensor_type 1: elem_type 1, shape 2: dim 1: dim_value 1, dim_param 2)
local ordered = require "base.ordered"
local protobuf = require "command.export.protobuf"

local bytes, integer = protobuf.bytes, protobuf.integer

local file = {}

local IR_VERSION, OPSET = 8, 17

-- Numbers of TensorProto.DataType.
local TYPES = { f32 = 1, i32 = 6, i64 = 7, bool = 9 }

local File = {}
File.__index = File

--- A file without nodes. input: the name of one of the graph's inputs, which has the rows; for the caller to set.
function file.new() return setmetatable({ nodes = {}, tensors = ordered.map(), values = 0 }, File) end

local function list_of(array, field, encode)
    return table.concat(ordered.collect(array, function(x) return encode(field, x) end))
end

local function attribute(name, value)
    local encoded
    if type(value) == "table" then
        encoded = list_of(value, 8, integer) .. integer(20, 7)
    elseif math.type(value) == "integer" then
        encoded = integer(3, value) .. integer(20, 2)
    else
        encoded = protobuf.float(2, value) .. integer(20, 1)
    end
    return bytes(5, bytes(1, name) .. encoded)
end

--- Appends a node. inputs: names of values, "" for one that is left out; attributes: numbers or arrays of integers by
--- name; output: the name of the result, or nil for a new one. Returns that name.
function File:node(op, inputs, attributes, output)
    self.values = self.values + 1
    output = output or ("%s_%d"):format(op, self.values)
    local parts = { list_of(inputs, 1, bytes), bytes(2, output), bytes(3, output), bytes(4, op) }
    for name, value in ordered.each(attributes or {}) do parts[#parts + 1] = attribute(name, value) end
    self.nodes[#self.nodes + 1] = bytes(1, table.concat(parts))
    return output
end

--- Adds a tensor of this name, once; raw(): its bytes. Returns the name.
function File:tensor(name, dtype, shape, raw)
    if not self.tensors:has(name) then
        self.tensors:set(name, list_of(shape, 1, integer) .. integer(2, TYPES[dtype]) .. bytes(8, name)
            .. bytes(9, raw()))
    end
    return name
end

--- The name of a tensor of constants: "i64" (an array) or "f32" (an array, or a number without axes) or "bool".
function File:constant(dtype, values, shape)
    local format = ({ i64 = "<i8", f32 = "<f", bool = "<B" })[dtype]
    local list = type(values) == "table" and values or { values }
    local raw = table.concat(ordered.collect(list, function(v) return string.pack(format, v) end))
    shape = shape or type(values) == "table" and { #values } or {}
    local text = #list <= 8 and table.concat(list, "_") or host.sha256(raw):sub(1, 12)
    return self:tensor(("constant_%s_%s_%s"):format(dtype, table.concat(shape, "x"), text), dtype, shape,
        function() return raw end)
end

-- A value of the graph's inputs and outputs; its first axis, the rows of the batch, may have any extent.
local function value_info(field, name, dtype, shape)
    local dims = ordered.collect(shape, function(extent, i)
        return bytes(1, i == 1 and bytes(2, "rows") or integer(1, extent))
    end)
    local kind = integer(1, TYPES[dtype]) .. bytes(2, table.concat(dims))
    return bytes(field, bytes(1, name) .. bytes(2, bytes(1, kind)))
end

--- The bytes of the file. name: of the graph; inputs: { name, dtype, shape } each; output: the same.
function File:bytes(name, inputs, output)
    local parts = { table.concat(self.nodes), bytes(2, name) }
    for _, tensor in self.tensors:each() do parts[#parts + 1] = bytes(5, tensor) end
    for _, value in ipairs(inputs) do
        parts[#parts + 1] = value_info(11, value.name, value.dtype, value.shape)
    end
    parts[#parts + 1] = value_info(12, output.name, output.dtype, output.shape)
    return integer(1, IR_VERSION) .. bytes(2, "gagen") .. bytes(3, host.version) .. bytes(7, table.concat(parts))
        .. bytes(8, integer(2, OPSET))
end

return file
