-- Bounded replacements for functions of Lua 5.1 that compute sizes from their arguments.
local raw_unpack, raw_insert, tonumber, type, error = ...

local VALUES_MAX = 8000

local function unpack(list, first, last)
    local from, to = tonumber(first or 1), tonumber(last)
    if type(list) == 'table' and from and (to or last == nil) then
        to = to or #list
        if to - from >= VALUES_MAX then error('too many results to unpack', 2) end
        if not (from >= -2147483648 and to <= 2147483647) then error('too many results to unpack', 2) end
    end
    return raw_unpack(list, first, last)
end

local function insert(list, position, ...)
    local at = tonumber(position)
    if type(list) == 'table' and at and ... ~= nil then
        if not (at >= 1 and at <= 2147483647) then error("bad argument #2 to 'insert' (position out of bounds)", 2) end
    end
    return raw_insert(list, position, ...)
end

return unpack, insert
