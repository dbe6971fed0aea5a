-- cmsgpack for scripts in the embedded store: pack and unpack, as Redis' Lua has them. It comes in front of a script, on the script's first line:
-- no comments below, and no strings with line ends.
local cmsgpack = (function()
  local char, byte, sub, floor, concat = string.char, string.byte, string.sub, math.floor, table.concat

  local function big(n, bytes)
    local out = {}
    for i = bytes, 1, -1 do
      out[i] = char(n % 256)
      n = floor(n / 256)
    end
    return concat(out)
  end

  local function wide(n)
    local high = floor(n / 2^32)
    return big(high, 4) .. big(n - high * 2^32, 4)
  end

  local infinite = math.ldexp(1, 1023) * 2

  local function double(n)
    local sign = 0
    if n < 0 or 1 / n < 0 then
      sign, n = 1, -n
    end
    if n ~= n then
      return char(0xca) .. big(0x7fc00000, 4)
    elseif n ~= 0 and n == n * 2 then
      return char(0xca) .. big(sign * 2^31 + 0x7f800000, 4)
    elseif n == 0 then
      return char(0xca) .. big(sign * 2^31, 4)
    end
    local part, exponent = math.frexp(n)
    exponent = exponent + 1022
    if exponent > 0 then
      part = math.ldexp(part * 2 - 1, 52)
    else
      part, exponent = math.ldexp(part, exponent + 52), 0
    end
    local short = exponent - 896
    if part % 2^29 == 0 and short > 0 and short < 255 then
      return char(0xca) .. big(sign * 2^31 + short * 2^23 + part / 2^29, 4)
    end
    local high = floor(part / 2^32)
    return char(0xcb) .. big(sign * 2^31 + exponent * 2^20 + high, 4) .. big(part - high * 2^32, 4)
  end

  local function number(n)
    if n ~= floor(n) or n < -2^63 or n >= 2^63 then
      return double(n)
    elseif n >= 0 then
      if n < 0x80 then return char(n) end
      if n < 2^8 then return char(0xcc, n) end
      if n < 2^16 then return char(0xcd) .. big(n, 2) end
      if n < 2^32 then return char(0xce) .. big(n, 4) end
      return char(0xcf) .. wide(n)
    end
    if n >= -32 then return char(n + 256) end
    if n >= -2^7 then return char(0xd0, n + 256) end
    if n >= -2^15 then return char(0xd1) .. big(n + 2^16, 2) end
    if n >= -2^31 then return char(0xd2) .. big(n + 2^32, 4) end
    return char(0xd3) .. wide(n)
  end

  local function head(n, few, most, one, two, four)
    if n < most then return char(few + n) end
    if one and n < 2^8 then return char(one, n) end
    if n < 2^16 then return char(two) .. big(n, 2) end
    return char(four) .. big(n, 4)
  end

  local function count(t)
    local keys, most, array = 0, 0, true
    for k in pairs(t) do
      keys = keys + 1
      if type(k) ~= 'number' or k < 1 or k ~= floor(k) then
        array = false
      elseif k > most then
        most = k
      end
    end
    return keys, array and keys == most
  end

  local function encode(v, depth)
    local kind = type(v)
    if kind == 'string' then
      return head(#v, 0xa0, 32, 0xd9, 0xda, 0xdb) .. v
    elseif kind == 'number' then
      return number(v)
    elseif kind == 'boolean' then
      return char(v and 0xc3 or 0xc2)
    elseif kind ~= 'table' or depth > 16 then
      return char(0xc0)
    end
    local n, array = count(v)
    local out = { array and head(n, 0x90, 16, nil, 0xdc, 0xdd) or head(n, 0x80, 16, nil, 0xde, 0xdf) }
    if array then
      for i = 1, n do out[#out + 1] = encode(v[i], depth + 1) end
    else
      for k, e in pairs(v) do
        out[#out + 1] = encode(k, depth + 1)
        out[#out + 1] = encode(e, depth + 1)
      end
    end
    return concat(out)
  end

  local function take(s, i, n)
    if i + n - 1 > #s then error('Missing bytes in input.', 0) end
    return sub(s, i, i + n - 1), i + n
  end

  local function unsigned(s, i, bytes)
    local text, after = take(s, i, bytes)
    local n = 0
    for at = 1, bytes do n = n * 256 + byte(text, at) end
    return n, after
  end

  local function signed(s, i, bytes)
    local high, after = unsigned(s, i, math.min(bytes, 4))
    local limit = 2^(8 * math.min(bytes, 4))
    if high >= limit / 2 then high = high - limit end
    if bytes < 8 then return high, after end
    local low
    low, after = unsigned(s, after, 4)
    return high * 2^32 + low, after
  end

  local function real(s, i, bytes)
    local bits, bias, high, low, after = 52, 1023, nil, 0, nil
    high, after = unsigned(s, i, 4)
    if bytes == 8 then
      low, after = unsigned(s, after, 4)
    else
      bits, bias = 23, 127
    end
    local sign = high >= 2^31 and -1 or 1
    high = high % 2^31
    local width = bytes == 8 and 2^20 or 2^23
    local exponent = floor(high / width)
    local part = bytes == 8 and (high % width) * 2^32 + low or high % width
    if exponent == 2 * bias + 1 then return part == 0 and sign * infinite or infinite - infinite, after end
    if exponent == 0 then return sign * math.ldexp(part, 1 - bias - bits), after end
    return sign * math.ldexp(part + 2^bits, exponent - bias - bits), after
  end

  local decode

  local function array(s, i, n)
    local t = {}
    for at = 1, n do t[at], i = decode(s, i) end
    return t, i
  end

  local function map(s, i, n)
    local t = {}
    for _ = 1, n do
      local k, v
      k, i = decode(s, i)
      v, i = decode(s, i)
      t[k] = v
    end
    return t, i
  end

  local sized = { [0xd9] = take, [0xda] = take, [0xdb] = take,
    [0xdc] = array, [0xdd] = array, [0xde] = map, [0xdf] = map }
  local sizes = { [0xd9] = 1, [0xda] = 2, [0xdb] = 4, [0xdc] = 2, [0xdd] = 4, [0xde] = 2, [0xdf] = 4 }
  local plain = { [0xcc] = unsigned, [0xcd] = unsigned, [0xce] = unsigned, [0xcf] = unsigned, [0xd0] = signed, [0xd1] = signed,
    [0xd2] = signed, [0xd3] = signed, [0xca] = real, [0xcb] = real }
  local widths = { [0xcc] = 1, [0xcd] = 2, [0xce] = 4, [0xcf] = 8, [0xd0] = 1, [0xd1] = 2, [0xd2] = 4, [0xd3] = 8, [0xca] = 4, [0xcb] = 8 }

  decode = function(s, i)
    local b
    b, i = unsigned(s, i, 1)
    if b < 0x80 then return b, i end
    if b < 0x90 then return map(s, i, b - 0x80) end
    if b < 0xa0 then return array(s, i, b - 0x90) end
    if b < 0xc0 then return take(s, i, b - 0xa0) end
    if b >= 0xe0 then return b - 256, i end
    if b == 0xc0 then return nil, i end
    if b == 0xc2 then return false, i end
    if b == 0xc3 then return true, i end
    if plain[b] then return plain[b](s, i, widths[b]) end
    if not sized[b] then error('Bad data format in input.', 0) end
    local n
    n, i = unsigned(s, i, sizes[b])
    return sized[b](s, i, n)
  end

  return {
    pack = function(...)
      local out = {}
      for at = 1, select('#', ...) do out[at] = encode((select(at, ...)), 1) end
      return concat(out)
    end,
    unpack = function(s)
      local values, n, i = {}, 0, 1
      while i <= #s do
        n = n + 1
        values[n], i = decode(s, i)
      end
      return unpack(values, 1, n)
    end,
  }
end)()
