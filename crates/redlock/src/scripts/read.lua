-- What a hold keeps, if it is one of ours; no token where none is noted.
local function read(held)
    if type(held) ~= 'string' then return end
    local at, id, token, delay, size, rest = held:match('^(%d+) (%x+) (%d+) (%d+) (%d+) (.*)$')
    if not at or #at ~= 14 or #id ~= 32 or #token > 16 or tonumber(size) > #rest then return end
    return {id = id, token = token ~= '0' and token or '', at = tonumber(at), delay = tonumber(delay),
        holder = rest:sub(1, size), note = rest:sub(size + 1)}
end
