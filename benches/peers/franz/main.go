// franz-go by the same rules as the Rust programs: see ../src/main.rs for the words and what is printed.
package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func usage() (user, sys int64) {
	var u syscall.Rusage
	check(syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return u.Utime.Nano(), u.Stime.Nano()
}

func highWater() int64 {
	status, err := os.ReadFile("/proc/self/status")
	check(err)
	for _, line := range strings.Split(string(status), "\n") {
		if strings.HasPrefix(line, "VmHWM:") {
			kib, err := strconv.ParseInt(strings.Fields(line)[1], 10, 64)
			check(err)
			return kib * 1024
		}
	}
	return 0
}

// What is printed must not be optimised away.
var sink int64

func main() {
	mode, bootstrap, topic := os.Args[1], os.Args[2], os.Args[3]
	partitions, err := strconv.Atoi(os.Args[4])
	check(err)
	amount, err := strconv.ParseInt(os.Args[5], 10, 64)
	check(err)
	offsets := map[int32]kgo.Offset{}
	start := kgo.NewOffset().AtStart()
	if mode == "latency" {
		start = kgo.NewOffset().AtEnd()
	}
	for p := 0; p < partitions; p++ {
		offsets[int32(p)] = start
	}
	client, err := kgo.NewClient(
		kgo.SeedBrokers(bootstrap),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: offsets}),
	)
	check(err)
	defer client.Close()
	switch mode {
	case "read":
		read(client, amount)
	case "latency":
		latency(client, amount)
	case "idle":
		idle(client, amount)
	}
}

func read(client *kgo.Client, amount int64) {
	var seen, user, sys int64
	var begun time.Time
	for seen < amount {
		fetches := client.PollFetches(context.Background())
		if errs := fetches.Errors(); len(errs) > 0 {
			panic(errs[0].Err)
		}
		if begun.IsZero() {
			begun = time.Now()
			user, sys = usage()
		}
		fetches.EachRecord(func(r *kgo.Record) {
			sink += int64(len(r.Key)) + int64(len(r.Value)) + r.Offset + int64(r.Partition)
			seen++
		})
	}
	wall := time.Since(begun).Nanoseconds()
	u, s := usage()
	fmt.Println(seen, u-user, s-sys, wall, highWater())
}

func latency(client *kgo.Client, seconds int64) {
	context, stop := context.WithTimeout(context.Background(), time.Duration(seconds)*time.Second)
	defer stop()
	u0, s0 := usage()
	for context.Err() == nil {
		client.PollFetches(context).EachRecord(func(r *kgo.Record) {
			now := time.Now().UnixNano()
			sent, err := strconv.ParseInt(string(r.Value[:19]), 10, 64)
			check(err)
			fmt.Println((now - sent) / 1000)
		})
	}
	u, s := usage()
	fmt.Println("cpu", u-u0+s-s0)
}

func idle(client *kgo.Client, seconds int64) {
	warm, stop := context.WithTimeout(context.Background(), 2*time.Second)
	client.PollFetches(warm)
	stop()
	u0, s0 := usage()
	context, stop := context.WithTimeout(context.Background(), time.Duration(seconds)*time.Second)
	defer stop()
	for context.Err() == nil {
		client.PollFetches(context)
	}
	u, s := usage()
	fmt.Println("cpu", u-u0+s-s0)
}
