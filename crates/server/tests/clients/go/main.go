// Ordinary use by go-redis: go run . PORT.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/redis/go-redis/v9"
)

func check(is bool, what string) {
	if !is {
		panic(what)
	}
}

func main() {
	ctx := context.Background()
	r := redis.NewClient(&redis.Options{Addr: "127.0.0.1:" + os.Args[1]})
	check(r.FlushAll(ctx).Err() == nil, "flushall")
	check(r.Set(ctx, "a", 1, 0).Err() == nil, "set")
	check(r.Get(ctx, "a").Val() == "1" && r.Incr(ctx, "a").Val() == 2, "get, incr")
	check(errors.Is(r.Get(ctx, "none").Err(), redis.Nil), "nil")
	check(r.HSet(ctx, "h", "f", "1", "g", "2").Val() == 2, "hset")
	check(r.HGetAll(ctx, "h").Val()["g"] == "2", "hgetall")
	check(r.ZAdd(ctx, "z", redis.Z{Score: 2.5, Member: "b"}, redis.Z{Score: 1, Member: "a"}).Val() == 2, "zadd")
	scores := r.ZRangeWithScores(ctx, "z", 0, -1).Val()
	check(len(scores) == 2 && scores[1].Score == 2.5, "zrange")
	check(r.SAdd(ctx, "s", "a", "b").Val() == 2 && r.SIsMember(ctx, "s", "a").Val(), "sadd")
	pipe := r.Pipeline()
	for number := 0; number < 1000; number++ {
		pipe.Set(ctx, fmt.Sprint("p:", number), number, 0)
	}
	_, err := pipe.Exec(ctx)
	check(err == nil, "pipeline")
	found := map[string]bool{}
	for iter := r.Scan(ctx, 0, "p:*", 100).Iterator(); iter.Next(ctx); {
		found[iter.Val()] = true
	}
	check(len(found) == 1000, "scan")
	var all sync.WaitGroup
	for number := 0; number < 8; number++ {
		all.Add(1)
		go func() {
			defer all.Done()
			for done := 0; done < 20; {
				err := r.Watch(ctx, func(tx *redis.Tx) error {
					now, err := tx.Get(ctx, "counter").Int()
					if err != nil && !errors.Is(err, redis.Nil) {
						return err
					}
					_, err = tx.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
						pipe.Set(ctx, "counter", now+1, 0)
						return nil
					})
					return err
				}, "counter")
				if err == nil {
					done++
				} else {
					check(errors.Is(err, redis.TxFailedErr), fmt.Sprint("watch: ", err))
				}
			}
		}()
	}
	all.Wait()
	check(r.Get(ctx, "counter").Val() == "160", "counter")
	fmt.Println("go-redis ok")
}
