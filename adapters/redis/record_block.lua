-- This file precedes every script about a record. A record of a blocked key is the times at which the
-- block ends and was set: "!1730000001000000:1730000000000000".

-- block_reply returns the reply about a blocked key, nil if the value is no block, and false after it. A
-- clock that went backwards must not extend the block, so block_reply moves it to the present, unless the
-- call only looks.
local function block_reply(key, value, now, looks)
  local ceil, format = math.ceil, string.format
  local ends, began = string.match(value, '^!(%d+):(%d+)$')
  if not ends then
    return nil
  end
  local went_back = now < tonumber(began)
  local left = ends - (went_back and began or now)
  if went_back and not looks then
    local millis = ceil(left / 1000)
    redis.call('SET', key, format('!%.0f:%.0f', now + left, now), 'PX', format('%.0f', millis))
  end
  return left > 0 and { 4, 0, left, left, left, left, 0, 0 }
end

