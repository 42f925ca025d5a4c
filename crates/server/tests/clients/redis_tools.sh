#!/bin/sh
# redis-cli and redis-benchmark as they come: sh redis_tools.sh PORT.
set -eu
port=$1
cli() { redis-cli -p "$port" "$@"; }
[ "$(cli ping)" = PONG ]
[ "$(cli set a 1)" = OK ]
[ "$(cli incr a)" = 2 ]
[ "$(cli -3 hset h f v)" = 1 ]
[ "$(cli --json hgetall h)" = '{"f":"v"}' ]
[ "$(printf 'multi\nincr a\nget a\nexec\n' | cli | tail -n 1)" = 3 ]
cli info server | grep -q redis_version
cli --scan --pattern 'a*' | grep -qx a
# Without an answer to CONFIG it would say so.
out=$(redis-benchmark -p "$port" -q -n 2000 -c 20 -t ping,set,get,incr,lpush,rpush,lpop,rpop,sadd,hset,spop,zadd,zpopmin,lrange_100,mset 2>&1)
echo "$out" | tr '\r' '\n' | grep 'requests per second'
case $out in *ERR* | *WARNING* | *rror*) echo "$out"; exit 1 ;; esac
echo "redis-cli, redis-benchmark ok"
