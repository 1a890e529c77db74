-- The world that libraries of functions live in: the scripts' own once they are loaded, next to nothing until then.
--
-- Gets     `real`, what is global to scripts; `protect`, which makes stand-ins; the tables `redis` of both times.
-- Gives    the environment, a function for each time that begins, and what is found in both, as keys of a table: none of it
--          changes.

local real, protect, redis, loading = ...

-- Raises for a name that is not there.
local strict = getmetatable(real)

local running = {}
for name, value in next, real do
    running[name] = value
end
running.__redis__err__handler = nil
running.redis = protect(redis)
running.server = running.redis
setmetatable(running, strict)

local stand_in = protect(setmetatable(loading, strict))
local bare = setmetatable({ redis = stand_in, server = stand_in }, strict)

local environment = protect(running, protect({}))
rawset(running, '_G', environment)
local sight = getmetatable(environment)

local function load()
    sight.__index = bare
end

local function run()
    sight.__index = running
end

local known = {}

local function know(value)
    local kind = type(value)
    if known[value] or kind ~= 'table' and kind ~= 'function' then return end
    known[value] = true
    if kind == 'table' then
        for _, inner in real.pairs(value) do
            know(inner)
        end
    end
end

know(environment)
know(stand_in)

return environment, load, run, known
