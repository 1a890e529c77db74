-- The world that scripts live in: Lua's own functions, as far as Redis leaves them, behind tables that cannot be written.
--
-- Gets     `own`, functions in Rust; `real`, a table with what is to be global; `direct`, one for what scripts see that only
--          call, with false for every name. Gives back what Rust needs of it.
-- Rule     a script never gets hold of a table of `real` itself: it sees stand-ins, which are empty and look things up there;
--          or it has been read, and only calls what is in such a table.

local own, real, direct = ...

local error, getmetatable, next, pairs, rawget, rawset = error, getmetatable, next, pairs, rawget, rawset
local setmetatable, sort, tostring, type = setmetatable, table.sort, tostring, type
local is_native = own.is_native

-- Stand-ins. What knows them looks for `__newindex`, `__index` and `shown`, which is what `getmetatable` says of one.
local function refuse()
    error('Attempt to modify a readonly table', 2)
end

local function protect(table, metatable)
    return setmetatable({}, { __index = table, __newindex = refuse, shown = metatable })
end

-- Tables.

local function on_tables(library, name, other)
    library[name] = own.on_tables(name, library[name], refuse, other)
end

for _, name in next, { 'getmetatable', 'next', 'rawget', 'rawset', 'setmetatable' } do
    on_tables(real, name)
end
on_tables(real, 'pairs', real.next)
on_tables(real.table, 'insert')

local function is_less(a, b)
    return a < b
end

on_tables(real.table, 'sort', function(table, compare)
    if compare == nil then
        return sort(table, is_less)
    elseif is_native(compare) then
        return sort(table, function(a, b) return (compare(a, b)) end)
    end
    return sort(table, compare)
end)

-- Errors that are caught.

real.pcall, real.xpcall = own.pcall, own.xpcall
real.coroutine.resume, real.coroutine.wrap = own.resume, own.wrap

-- Source texts, and what they make garbage of.

local globals = protect(real, protect({}))
real.loadstring, real.load = unpack(own.compilers(globals))
real.collectgarbage = own.collectgarbage

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
rawset(real, '_G', globals)
-- A method of a string is found at once, and seen behind a stand-in.
getmetatable('').__index = libraries.string
getmetatable('').__metatable = protect({ __index = real.string })

return globals, protect
