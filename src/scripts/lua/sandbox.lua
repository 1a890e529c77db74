-- The world that scripts live in: Lua's own functions, as far as Redis leaves them, behind tables that cannot be written.
--
-- Gets     `own`, functions in Rust; `real`, a table with what is to be global; `direct`, one for what scripts see that only
--          call, with false for every name. Gives back what Rust needs of it.
-- Rule     a script never gets hold of a table of `real` itself: it sees stand-ins, which are empty and look things up there;
--          or it has been read, and only calls what is in such a table.
-- Rule     an error that a script catches passes `own.passed`, which raises again what no script may catch.

local own, real, direct = ...

local error, getmetatable, load, loadstring, next, pairs = error, getmetatable, load, loadstring, next, pairs
local rawget, rawset, select, setfenv = rawget, rawset, select, setfenv
local setmetatable, tostring, type = setmetatable, tostring, type
local collectgarbage = collectgarbage
local concat, insert, sort = table.concat, table.insert, table.sort
local resume, create = coroutine.resume, coroutine.create
local for_plain_tables, is_native, passed, poll = own.for_plain_tables, own.is_native, own.passed, own.poll

local READONLY = 'Attempt to modify a readonly table'

-- Stand-ins: what each stands for, and what `getmetatable` says of it.
local stands_for, shown = setmetatable({}, { __mode = 'k' }), {}

local function refuse()
    error(READONLY, 2)
end

local function protect(table, metatable)
    local stand_in = setmetatable({}, { __index = table, __newindex = refuse })
    stands_for[stand_in] = table
    shown[stand_in] = metatable
    return stand_in
end

local function typename(count, value)
    return count == 0 and 'no value' or type(value)
end

local function bad_argument(number, name, reason)
    error("bad argument #" .. number .. " to '" .. name .. "' (" .. reason .. ')', 3)
end

-- Tables.

real.next = for_plain_tables('next', next, function(table, key)
    if stands_for[table] then return next(stands_for[table], key) end
    return next(table, key)
end)

real.pairs = for_plain_tables('pairs', pairs, function(table)
    if stands_for[table] then return real.next, table, nil end
    return next, table, nil
end)

real.rawget = for_plain_tables('rawget', rawget, function(table, key)
    return rawget(stands_for[table] or table, key)
end)

real.rawset = for_plain_tables('rawset', rawset, function(table, key, value)
    if stands_for[table] then error(READONLY, 0) end
    return rawset(table, key, value)
end)

real.setmetatable = for_plain_tables('setmetatable', setmetatable, function(table, metatable)
    if stands_for[table] then error(READONLY, 0) end
    return setmetatable(table, metatable)
end)

real.getmetatable = for_plain_tables('getmetatable', getmetatable, function(object)
    if stands_for[object] then return shown[object] end
    return getmetatable(object)
end)

real.table.insert = for_plain_tables('insert', insert, function(table, ...)
    if stands_for[table] then error(READONLY, 0) end
    return insert(table, ...)
end)

-- Lua's own sort can take a quadratic number of steps. Where it compares by itself no hook sees them; a function in Lua
-- that compares is seen. No plain table of few elements comes here, unless a function in C compares them.
local function is_less(a, b)
    return a < b
end

real.table.sort = for_plain_tables('sort', sort, function(table, compare)
    if compare == nil then
        return sort(table, is_less)
    elseif type(compare) == 'function' and is_native(compare) then
        return sort(table, function(a, b) return (compare(a, b)) end)
    end
    return sort(table, compare)
end)

-- Errors that are caught.

real.pcall, real.xpcall = own.pcall, own.xpcall

local function resumed(is_fine, ...)
    if is_fine then return true, ... end
    return false, passed(...)
end

function real.coroutine.resume(...)
    local routine = ...
    if type(routine) ~= 'thread' then bad_argument(1, 'resume', 'coroutine expected') end
    return resumed(resume(...))
end

local function carry_on(is_fine, ...)
    if is_fine then return ... end
    error(passed(...), 3)
end

function real.coroutine.wrap(...)
    local body = ...
    if type(body) ~= 'function' or is_native(body) then bad_argument(1, 'wrap', 'Lua function expected') end
    local routine = create(body)
    return function(...)
        return carry_on(resume(routine, ...))
    end
end

-- Source texts.

local function compile(text, name)
    -- What begins like bytecode is read as the text that it is not.
    local prefix = text:sub(1, 1) == '\27' and ' ' or ''
    local compiled, reason = loadstring(prefix .. text, name or text)
    if not compiled then return nil, passed(reason) end
    return setfenv(compiled, real._G)
end

function real.loadstring(...)
    local text, name = ...
    if type(text) == 'number' then text = tostring(text) end
    if type(text) ~= 'string' then
        bad_argument(1, 'loadstring', 'string expected, got ' .. typename(select('#', ...), text))
    elseif name ~= nil and type(name) ~= 'string' and type(name) ~= 'number' then
        bad_argument(2, 'loadstring', 'string expected, got ' .. type(name))
    end
    return compile(text, name and tostring(name))
end

function real.load(...)
    local reader, name = ...
    if type(reader) ~= 'function' then
        bad_argument(1, 'load', 'function expected, got ' .. typename(select('#', ...), reader))
    end
    local pieces = {}
    while true do
        local piece = reader()
        if type(piece) == 'number' then piece = tostring(piece) end
        if piece == nil or piece == '' then break end
        if type(piece) ~= 'string' then return nil, 'reader function must return a string' end
        pieces[#pieces + 1] = piece
    end
    return compile(concat(pieces), name and tostring(name) or '=(load)')
end

function real.collectgarbage(option, ...)
    -- The pace of the collector is not a script's to choose.
    if option == nil or option == 'collect' then
        poll(collectgarbage('count'))
        return collectgarbage('collect')
    elseif option == 'count' then
        return collectgarbage('count')
    elseif option == 'step' then
        return false
    elseif option == 'stop' or option == 'restart' then
        return 0
    elseif option == 'setpause' or option == 'setstepmul' then
        return 200
    end
    bad_argument(1, 'collectgarbage', "invalid option '" .. tostring(option) .. "'")
end

-- Globals.

local function absent(_, name)
    error("Script attempted to access nonexistent global variable '" .. tostring(name) .. "'", 2)
end

setmetatable(real, { __index = absent })

local libraries = {}
for name, library in pairs(real) do
    if type(library) == 'table' then libraries[name] = library end
end
for name in next, direct do
    direct[name] = rawget(real, name)
end
setmetatable(direct, { __index = absent, __newindex = refuse })
for name, library in pairs(libraries) do
    rawset(real, name, protect(library))
end
rawset(real, '_G', protect(real, protect({})))
-- A method of a string is found at once, and seen behind a stand-in.
getmetatable('').__index = libraries.string
getmetatable('').__metatable = protect({ __index = real.string })

return real._G, protect
