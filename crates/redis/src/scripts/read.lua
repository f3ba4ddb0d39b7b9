-- What a hold keeps, if it is one of ours.
local function read(held)
    if type(held) ~= 'string' then return end
    local id, token, at, delay, size, rest = held:match('^(%x+) (%d+) (%d+) (%d+) (%d+) (.*)$')
    if not id or #id ~= 32 or #token > 16 or tonumber(size) > #rest then return end
    return {id = id, token = token, at = tonumber(at), delay = tonumber(delay),
        holder = rest:sub(1, size), note = rest:sub(size + 1)}
end
