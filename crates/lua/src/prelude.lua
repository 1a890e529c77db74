-- The part of the sandbox that is written in Lua: what catches errors, and what would loop or compute sizes in C.
--
-- Rule  C functions of Lua are kept in locals, and scripts get none that is unsafe with some argument.
-- Rule  whatever catches an error ends the script again if that is why the error was raised: see `caught`.
-- Rule  functions are called under the hook, so that each of these loops can be ended.

local globals, rust = ...
local error, type, tonumber, select, floor = error, type, tonumber, select, math.floor
local raw_pcall, raw_xpcall, raw_next, raw_rawget, raw_rawset = pcall, xpcall, next, rawget, rawset
local raw_unpack, raw_getmetatable, raw_concat, raw_resume = unpack, getmetatable, table.concat, coroutine.resume
local create, raw_maxn, frexp, ldexp = coroutine.create, table.maxn, math.frexp, math.ldexp
local bad, fail, reveal, set_metatable, compile = rust.bad, rust.fail, rust.reveal, rust.setmetatable, rust.compile
local replace_text, next_match, failed = rust.gsub, rust.next_match, rust.failed

-- Values that one function may return: Lua's C stack has 8000 slots.
local VALUES_MAX = 7950

-- Stand-ins: empty tables that show another one, which scripts cannot write. `behind` gives the metatable of each, whose
-- `__index` is the table that it stands for. `shown` is what `getmetatable` gives.
local behind, shown = {}, {}

local function readonly()
    fail('Attempt to modify a readonly table')
end

local function stand_in(table, metatable_shown)
    local metatable = { __index = table, __newindex = readonly }
    local proxy = set_metatable({}, metatable)
    behind[proxy], shown[proxy] = metatable, metatable_shown
    return proxy, metatable
end

-- Refuses to write a stand-in in a function that names no place.
local function writable(table)
    if behind[table] then error('Attempt to modify a readonly table', 0) end
end

local function check_table(at, value, count)
    if type(value) ~= 'table' then bad(at, 'table expected, got ', value, count < at) end
end

-- What C makes of a number that it takes as an `int`, on x86-64: a whole number from -2^31 to 2^31 - 1, whatever it was.
-- The difference of two such numbers is exact, so that `last - first` is negative only where there is nothing in between.
local function c_int(number)
    if not (number > -2 ^ 63 and number < 2 ^ 63) then return 0 end
    number = (number < 0 and -floor(-number) or floor(number)) % 2 ^ 32
    return number >= 2 ^ 31 and number - 2 ^ 32 or number
end

-- Argument `at` as an `int` of C.
local function check_integer(at, value, count)
    local number = tonumber(value)
    if not number then bad(at, 'number expected, got ', value, count < at) end
    if number % 1 == 0 and number >= -2 ^ 31 and number < 2 ^ 31 then return number end
    return c_int(number)
end

local function check_string(at, value, count)
    local kind = type(value)
    if kind ~= 'string' and kind ~= 'number' then bad(at, 'string expected, got ', value, count < at) end
end

-- Errors. `reveal` makes of what was raised the value that a script sees, and tells whether the script has to end.

local function caught(value)
    local seen, is_over = reveal(value)
    if is_over then error(value, 0) end
    return seen
end

local function pcall_results(is_fine, ...)
    if is_fine then return true, ... end
    local why = caught((...))
    if type(why) == 'table' then
        -- A script sees the text of an error reply.
        local text = why.err
        if type(text) == 'string' or type(text) == 'number' then return false, text end
        return false, why, text
    end
    return false, why
end

function globals.pcall(...)
    if select('#', ...) == 0 then return false, 'attempt to call a boolean value' end
    return pcall_results(raw_pcall(...))
end

local function results(is_fine, ...)
    if is_fine then return true, ... end
    return false, caught((...))
end

function globals.xpcall(...)
    local body, handler = ...
    if select('#', ...) < 2 then bad(2, 'value expected') end
    return results(raw_xpcall(body, function(value)
        local seen, is_over = reveal(value)
        -- No handler sees the end of the script.
        if is_over then return value end
        return handler(seen)
    end))
end

-- Coroutines.

local coroutine = globals.coroutine

function coroutine.resume(...)
    if type((...)) ~= 'thread' then bad(1, 'coroutine expected') end
    return results(raw_resume(...))
end

local function wrapped_results(is_fine, ...)
    if is_fine then return ... end
    local why = caught((...))
    if type(why) == 'string' then fail(why) end
    error(why, 0)
end

function coroutine.wrap(...)
    local body = ...
    local is_fine, thread = raw_pcall(create, body)
    if not is_fine then
        local why = caught(thread)
        -- Lua has no room for another C call here.
        if why == 'C stack overflow' then fail(why) end
        bad(1, 'Lua function expected')
    end
    return function(...) return wrapped_results(raw_resume(thread, ...)) end
end

-- Numbers.

function globals.tonumber(...)
    local value, base = ...
    if base == nil then
        if value == nil and select('#', ...) < 1 then bad(1, 'value expected') end
        return tonumber(value)
    end
    base = check_integer(2, base, 2)
    if base == 10 then return tonumber(value) end
    check_string(1, value, 2)
    if base < 2 or base > 36 then bad(2, 'base out of range') end
    return tonumber(value, base)
end

local math = globals.math

-- A number in place of a text that reads as one.
local function check_number(at, value, count)
    return tonumber(value) or bad(at, 'number expected, got ', value, count < at)
end

function math.frexp(...)
    local number = check_number(1, ..., select('#', ...))
    -- What C stores as the exponent of these is not specified.
    if number - number ~= 0 then return number, 0 end
    return frexp(number)
end

function math.ldexp(...)
    local number, exponent = ...
    local count = select('#', ...)
    -- The last argument first, as in Redis.
    exponent = check_integer(2, exponent, count)
    return ldexp(check_number(1, number, count), exponent)
end

-- Tables.

function globals.select(...)
    local at = ...
    if at == '#' then return select('#', ...) - 1 end
    local number = tonumber(at)
    -- Without a fraction it is an `int` of C already, for which there is no error.
    if number and number >= 1 and number < 2 ^ 31 then return select(...) end
    local count = select('#', ...)
    -- As in C, whatever begins with the sign.
    if type(at) == 'string' and globals.string.sub(at, 1, 1) == '#' then return count - 1 end
    at = check_integer(1, at, count)
    if at < 0 then at = count + at end
    if at < 1 then bad(1, 'index out of range') end
    if at < count then return select(at + 1, ...) end
end

-- `at` is a double, not an `int` that C counts up.
local function next_index(list, at)
    at = at + 1
    local value = raw_rawget(list, at)
    if value ~= nil then return at, value end
end

function globals.ipairs(...)
    check_table(1, ..., select('#', ...))
    return next_index, ..., 0
end

function globals.unpack(...)
    local list, first, last = ...
    local count = select('#', ...)
    check_table(1, list, count)
    if first == nil then first = 1 else first = check_integer(2, first, count) end
    if last == nil then last = #list else last = check_integer(3, last, count) end
    if last - first >= VALUES_MAX then fail('too many results to unpack') end
    if last == 2 ^ 31 - 1 then
        -- C would count beyond the last `int`.
        local values, offset = {}, first - 1
        for at = first, last do values[at - offset] = raw_rawget(list, at) end
        list, first, last = values, 1, last - offset
    end
    return raw_unpack(list, first, last)
end

function globals.next(...)
    local table, key = ...
    check_table(1, table, select('#', ...))
    local metatable = behind[table]
    if metatable then table = metatable.__index end
    return raw_next(table, key)
end

local next = globals.next

function globals.pairs(...)
    local table = ...
    check_table(1, table, select('#', ...))
    if behind[table] then return next, table, nil end
    return raw_next, table, nil
end

function globals.rawget(...)
    local table, key = ...
    local count = select('#', ...)
    check_table(1, table, count)
    if count < 2 then bad(2, 'value expected') end
    local metatable = behind[table]
    if metatable then table = metatable.__index end
    return raw_rawget(table, key)
end

function globals.rawset(...)
    local table, key, value = ...
    local count = select('#', ...)
    check_table(1, table, count)
    if count < 2 then bad(2, 'value expected') end
    if count < 3 then bad(3, 'value expected') end
    writable(table)
    return raw_rawset(table, key, value)
end

function globals.getmetatable(...)
    local value = ...
    if select('#', ...) < 1 then bad(1, 'value expected') end
    if behind[value] then return shown[value] end
    if type(value) == 'string' then return shown[''] end
    return raw_getmetatable(value)
end

function globals.setmetatable(...)
    local table, metatable = ...
    local count = select('#', ...)
    check_table(1, table, count)
    if count < 2 or metatable ~= nil and type(metatable) ~= 'table' then bad(2, 'nil or table expected') end
    writable(table)
    return set_metatable(table, metatable)
end

local table = globals.table

function table.insert(...)
    local list, position, value = ...
    local count = select('#', ...)
    check_table(1, list, count)
    local length = #list
    if count == 2 then
        position, value = length + 1, position
    elseif count == 3 then
        position = check_integer(2, position, count)
    else
        fail("wrong number of arguments to 'insert'")
    end
    writable(list)
    if position < 1 then bad(2, 'position out of bounds') end
    for at = length, position, -1 do raw_rawset(list, at + 1, raw_rawget(list, at)) end
    raw_rawset(list, position, value)
end

function table.remove(...)
    local list, position = ...
    local count = select('#', ...)
    check_table(1, list, count)
    local length = #list
    if position == nil then position = length else position = check_integer(2, position, count) end
    if position < 1 or position > length then return end
    local removed = raw_rawget(list, position)
    for at = position, length - 1 do raw_rawset(list, at, raw_rawget(list, at + 1)) end
    raw_rawset(list, length, nil)
    return removed
end

-- Without a place in front of the error: C called it.
local function concatenated(is_fine, result)
    if is_fine then return result end
    result = caught(result)
    if type(result) == 'string' then fail(result) end
    error(result, 0)
end

function table.concat(...)
    local list, separator, first, last = ...
    local count = select('#', ...)
    if separator ~= nil then check_string(2, separator, count) end
    check_table(1, list, count)
    if first == nil then first = 1 else first = check_integer(3, first, count) end
    if last == nil then last = #list else last = check_integer(4, last, count) end
    return concatenated(raw_pcall(raw_concat, list, separator, first, last))
end

function table.getn(...)
    check_table(1, ..., select('#', ...))
    return #...
end

function table.maxn(...)
    check_table(1, ..., select('#', ...))
    return raw_maxn((...))
end

function table.setn(...)
    check_table(1, ..., select('#', ...))
    fail("'setn' is obsolete")
end

function table.foreach(...)
    local list, body = ...
    local count = select('#', ...)
    check_table(1, list, count)
    if type(body) ~= 'function' then bad(2, 'function expected, got ', body, count < 2) end
    for key, value in globals.pairs(list) do
        local result = body(key, value)
        if result ~= nil then return result end
    end
end

function table.foreachi(...)
    local list, body = ...
    local count = select('#', ...)
    check_table(1, list, count)
    if type(body) ~= 'function' then bad(2, 'function expected, got ', body, count < 2) end
    for at = 1, #list do
        local result = body(at, raw_rawget(list, at))
        if result ~= nil then return result end
    end
end

-- Quicksort as Lua 5.1 has it, so that a list is in the same order whatever is compared.
local function sort(list, low, high, is_less)
    while low < high do
        local first, last = list[low], list[high]
        if is_less(last, first) then list[low], list[high] = last, first end
        if high - low == 1 then return end
        local middle = floor((low + high) / 2)
        local pivot, first = list[middle], list[low]
        if is_less(pivot, first) then
            list[middle], list[low] = first, pivot
        else
            local last = list[high]
            if is_less(last, pivot) then list[middle], list[high] = last, pivot end
        end
        if high - low == 2 then return end
        pivot = list[middle]
        list[middle], list[high - 1] = list[high - 1], pivot
        local left, right = low, high - 1
        while true do
            left = left + 1
            local value = list[left]
            while is_less(value, pivot) do
                if left > high then fail('invalid order function for sorting') end
                left = left + 1
                value = list[left]
            end
            right = right - 1
            local other = list[right]
            while is_less(pivot, other) do
                if right < low then fail('invalid order function for sorting') end
                right = right - 1
                other = list[right]
            end
            if right < left then break end
            list[left], list[right] = other, value
        end
        list[high - 1], list[left] = list[left], list[high - 1]
        if left - low < high - left then
            sort(list, low, left - 1, is_less)
            low = left + 1
        else
            sort(list, left + 1, high, is_less)
            high = left - 1
        end
    end
end

-- The operator `<`. Its errors name no place, as in C.
local function is_less_by_default(left, right)
    local kind, other = type(left), type(right)
    if kind ~= other then error('attempt to compare ' .. kind .. ' with ' .. other, 0) end
    local metatable = kind == 'table' and raw_getmetatable(left)
    if kind ~= 'number' and kind ~= 'string' and not (type(metatable) == 'table' and metatable.__lt) then
        error('attempt to compare two ' .. kind .. ' values', 0)
    end
    return left < right
end

function table.sort(...)
    local list, is_less = ...
    local count = select('#', ...)
    check_table(1, list, count)
    if is_less ~= nil and type(is_less) ~= 'function' then bad(2, 'function expected, got ', is_less) end
    writable(list)
    sort(list, 1, #list, is_less or is_less_by_default)
end

-- Strings.

local string = globals.string

function string.gmatch(...)
    local subject, pattern = rust.texts(...)
    local at = 0
    local function results(next_at, ...)
        at = next_at
        return ...
    end
    return function() return results(next_match(subject, pattern, at)) end
end

string.gfind = string.gmatch

local PIECES_MAX = 4000

-- Replaces with the results of a function or the fields of a table. A match that gets neither stays.
function string.gsub(...)
    local subject, pattern, replacement, limit = ...
    local kind = type(replacement)
    if kind ~= 'function' and kind ~= 'table' then return replace_text(...) end
    subject, pattern = rust.texts(subject, pattern)
    if limit == nil then
        limit = #subject + 1
    else
        limit = check_integer(4, limit, 4)
    end
    local pieces, length, count, at, copied = {}, 0, 0, 0, 1
    local function replaced(from, to, next_at, first, ...)
        if not from then return true end
        at, count = next_at, count + 1
        local value
        if kind == 'table' then value = replacement[first] else value = replacement(first, ...) end
        if value then
            if type(value) ~= 'string' and type(value) ~= 'number' then
                fail('invalid replacement value (a ' .. type(value) .. ')')
            end
            if length + 2 > PIECES_MAX then pieces, length = { raw_concat(pieces) }, 1 end
            pieces[length + 1], pieces[length + 2] = string.sub(subject, copied, from - 1), value
            length, copied = length + 2, to + 1
        end
    end
    while count < limit do
        if replaced(rust.next_gsub(subject, pattern, at)) then break end
    end
    pieces[length + 1] = string.sub(subject, copied)
    return raw_concat(pieces), count
end

-- Text that is compiled at run time. It sees the globals of the script.

-- One value where the text compiles, two where it does not.
local function compiled(compiled_function, why)
    if compiled_function then return compiled_function end
    return nil, why
end

local function loader(environment)
    local function loadstring(...)
        return compiled(compile(environment, rust.chunk(...)))
    end
    local function load(...)
        local reader, name = ...
        local count = select('#', ...)
        if name ~= nil and type(name) ~= 'string' and type(name) ~= 'number' then
            bad(2, 'string expected, got ', name)
        end
        if type(reader) ~= 'function' then bad(1, 'function expected, got ', reader, count < 1) end
        local pieces, length = {}, 0
        while true do
            local is_fine, piece = results(raw_pcall(reader))
            if not is_fine then return nil, piece end
            if piece == nil or piece == '' then break end
            if type(piece) ~= 'string' and type(piece) ~= 'number' then
                return nil, 'reader function must return a string'
            end
            if length >= PIECES_MAX then pieces, length = { raw_concat(pieces) }, 1 end
            length = length + 1
            pieces[length] = piece
        end
        return compiled(compile(environment, raw_concat(pieces), name or '=(load)'))
    end
    return loadstring, load
end

-- Commands. `redis.call` is a function of Rust that lives as long as the run.

local script_redis = globals.redis
local refuse = rust.refuse
local current = refuse
script_redis.call = refuse

function script_redis.pcall(...)
    local is_fine, result = raw_pcall(current, ...)
    if is_fine then return result end
    return caught(result)
end

-- Runs: whether a run succeeded, and its first result. `failed` has noted why it did not.

local function begin(redis, call)
    current, redis.call = call, call
end

local function over(redis, is_fine, result)
    current, redis.call = refuse, refuse
    return is_fine, result
end

local scripts = {}

local function run_script(index, call, keys, args)
    begin(script_redis, call)
    globals.KEYS, globals.ARGV = keys, args
    local is_fine, result = over(script_redis, raw_xpcall(scripts[index], failed))
    globals.KEYS, globals.ARGV = nil, nil
    return is_fine, result
end

local function run_function(redis, body, call, keys, args)
    begin(redis, call)
    return over(redis, raw_xpcall(function() return body(keys, args) end, failed))
end

local function load_library(body)
    return raw_xpcall(body, failed)
end

return {
    stand_in = stand_in,
    shown = shown,
    loader = loader,
    scripts = scripts,
    run_script = run_script,
    run_function = run_function,
    load_library = load_library,
}
