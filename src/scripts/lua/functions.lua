-- The world that libraries of functions live in: the scripts' own once they are loaded, next to nothing until then.
--
-- Gets     `real`, what is global to scripts; `protect`, which makes stand-ins; the tables `redis` of both times.
-- Gives    the environment, and a function for each time that begins.

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

return environment, load, run
