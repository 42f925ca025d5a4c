"""Ordinary use by redis-py: python3 redis_py.py PORT."""

import sys
import threading

import redis

port = int(sys.argv[1])
for protocol in (2, 3):
    r = redis.Redis(port=port, protocol=protocol, decode_responses=True)
    r.flushall()
    assert r.ping()
    assert r.set("a", 1) and r.get("a") == "1" and r.incr("a") == 2
    assert r.set("t", "x", ex=100) and 99 <= r.ttl("t") <= 100
    assert r.set("t", "y", nx=True) is None and r.getdel("t") == "x"
    assert r.mset({"m1": "1", "m2": "2"}) and r.mget("m1", "none", "m2") == ["1", None, "2"]
    assert r.hset("h", mapping={"f": "1", "g": "2"}) == 2
    assert r.hgetall("h") == {"f": "1", "g": "2"} and r.hincrby("h", "f", 2) == 3
    assert r.sadd("s", "a", "b") == 2 and r.smembers("s") == {"a", "b"}
    assert r.zadd("z", {"a": 1, "b": 2.5}) == 2
    assert [(m, s) for m, s in r.zrange("z", 0, -1, withscores=True)] == [("a", 1.0), ("b", 2.5)]
    assert r.zscore("z", "b") == 2.5 and r.zrank("z", "b") == 1
    assert r.rpush("l", 1, 2, 3) == 3 and r.lrange("l", 0, -1) == ["1", "2", "3"]
    assert r.exists("a", "h", "none") == 2 and r.type("z") == "zset"
    for number in range(1000):
        r.set(f"scan:{number}", number)
    assert len(set(r.scan_iter("scan:*", count=100))) == 1000
    assert dict(r.hscan_iter("h")) == {"f": "3", "g": "2"}
    pipe = r.pipeline(transaction=False)
    for number in range(1000):
        pipe.set(f"p:{number}", number)
        pipe.get(f"p:{number}")
    assert pipe.execute()[1::2] == [str(number) for number in range(1000)]
    with r.pipeline() as pipe:
        pipe.multi()
        pipe.incr("n").hset("h2", "f", "v").get("n")
        assert pipe.execute() == [1, 1, "1"]

    def count():
        own = redis.Redis(port=port, protocol=protocol)
        for _ in range(50):
            def step(pipe):
                now = int(pipe.get("counter") or 0)
                pipe.multi()
                pipe.set("counter", now + 1)
            own.transaction(step, "counter")
    threads = [threading.Thread(target=count) for _ in range(4)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert r.get("counter") == "200", r.get("counter")
    assert r.info()["redis_version"] and r.config_get("save") == {"save": ""}
    assert r.client_setname("py") and r.client_getname() == "py" and r.client_list()
    assert r.dbsize() > 2000 and r.acl_whoami() == "default"
    try:
        r.incr("h")
        raise AssertionError("WRONGTYPE is expected")
    except redis.ResponseError as error:
        assert "WRONGTYPE" in str(error)
print("redis-py", redis.__version__, "ok")
