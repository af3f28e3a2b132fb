// etcd's own Go client, told what to do line by line: `peer ENDPOINT TTL_SECONDS`.
//
// One command per line on stdin, one answer per line on stdout; a wait blocks, and its answer comes when it is over.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
)

type peer struct {
	session *concurrency.Session
	held    map[string]*concurrency.Mutex
}

func main() {
	ttl, err := strconv.Atoi(os.Args[2])
	check(err)
	client, err := clientv3.New(clientv3.Config{
		Endpoints:   []string{os.Args[1]},
		DialTimeout: 10 * time.Second,
	})
	check(err)
	session, err := concurrency.NewSession(client, concurrency.WithTTL(ttl))
	check(err)
	p := peer{session: session, held: map[string]*concurrency.Mutex{}}
	fmt.Println("ready")
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		answer, err := p.obey(strings.Fields(lines.Text()))
		if err != nil {
			answer = "error " + strings.ReplaceAll(err.Error(), "\n", " ")
		}
		fmt.Println(answer)
	}
	check(session.Close())
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func (p *peer) obey(words []string) (string, error) {
	ctx := context.Background()
	verb, name := words[0], words[1]
	switch verb {
	case "lock":
		mutex := concurrency.NewMutex(p.session, name)
		if err := mutex.Lock(ctx); err != nil {
			return "", err
		}
		p.held[name] = mutex
		return "held", nil
	case "try":
		mutex := concurrency.NewMutex(p.session, name)
		err := mutex.TryLock(ctx)
		if errors.Is(err, concurrency.ErrLocked) {
			return "busy", nil
		}
		if err != nil {
			return "", err
		}
		p.held[name] = mutex
		return "held", nil
	case "release":
		return "released", p.held[name].Unlock(ctx)
	case "count":
		rounds, err := strconv.Atoi(words[3])
		if err != nil {
			return "", err
		}
		return "counted", p.count(ctx, name, words[2], rounds)
	case "bare":
		millis, err := strconv.Atoi(words[2])
		if err != nil {
			return "", err
		}
		return p.bare(ctx, name, time.Duration(millis)*time.Millisecond)
	case "rpc":
		lockers, err := strconv.Atoi(words[2])
		if err != nil {
			return "", err
		}
		millis, err := strconv.Atoi(words[3])
		if err != nil {
			return "", err
		}
		return p.rpc(ctx, name, lockers, time.Duration(millis)*time.Millisecond)
	}
	return "", fmt.Errorf("no such command: %s", verb)
}

// A number in a file that only the lock protects.
func (p *peer) count(ctx context.Context, name, file string, rounds int) error {
	mutex := concurrency.NewMutex(p.session, name)
	for round := 0; round < rounds; round++ {
		if err := mutex.Lock(ctx); err != nil {
			return err
		}
		if err := increment(file); err != nil {
			return err
		}
		if err := mutex.Unlock(ctx); err != nil {
			return err
		}
	}
	return nil
}

func increment(file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	number, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return err
	}
	next := file + ".next"
	if err := os.WriteFile(next, []byte(strconv.Itoa(number+1)), 0o644); err != nil {
		return err
	}
	return os.Rename(next, file)
}
