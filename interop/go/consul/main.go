// Consul's own Go client, told what to do line by line: `peer ADDRESS TTL`.
//
// One command per line on stdin, one answer per line on stdout; a wait blocks, and its answer comes when it is over.
package main

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/consul/api"
)

type held struct {
	release func() error
	lost    <-chan struct{}
}

type peer struct {
	client *api.Client
	ttl    string
	held   map[string]held
}

func main() {
	config := api.DefaultConfig()
	config.Address = os.Args[1]
	client, err := api.NewClient(config)
	check(err)
	p := peer{client: client, ttl: os.Args[2], held: map[string]held{}}
	fmt.Println("ready")
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		answer, err := p.obey(strings.Fields(lines.Text()))
		if err != nil {
			answer = "error " + strings.ReplaceAll(err.Error(), "\n", " ")
		}
		fmt.Println(answer)
	}
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func (p *peer) lock(key string, wait time.Duration) (*api.Lock, error) {
	return p.client.LockOpts(&api.LockOptions{
		Key:          key,
		SessionTTL:   p.ttl,
		LockTryOnce:  wait > 0,
		LockWaitTime: wait,
	})
}

func (p *peer) obey(words []string) (string, error) {
	verb, name := words[0], words[1]
	switch verb {
	case "lock", "try":
		wait := time.Duration(0)
		if verb == "try" {
			wait = 50 * time.Millisecond
		}
		lock, err := p.lock(name, wait)
		if err != nil {
			return "", err
		}
		lost, err := lock.Lock(nil)
		return p.got(name, lost, lock.Unlock, err)
	case "acquire", "try-acquire":
		limit, err := strconv.Atoi(words[2])
		if err != nil {
			return "", err
		}
		semaphore, err := p.client.SemaphoreOpts(&api.SemaphoreOptions{
			Prefix:            name,
			Limit:             limit,
			SessionTTL:        p.ttl,
			SemaphoreTryOnce:  verb == "try-acquire",
			SemaphoreWaitTime: 50 * time.Millisecond,
		})
		if err != nil {
			return "", err
		}
		lost, err := semaphore.Acquire(nil)
		return p.got(name, lost, semaphore.Release, err)
	case "release":
		return "released", p.held[name].release()
	case "lost":
		<-p.held[name].lost
		return "lost", nil
	case "count":
		rounds, err := strconv.Atoi(words[3])
		if err != nil {
			return "", err
		}
		return "counted", p.count(name, words[2], rounds)
	case "bare":
		millis, err := strconv.Atoi(words[2])
		if err != nil {
			return "", err
		}
		return p.bare(name, time.Duration(millis)*time.Millisecond)
	case "cycles":
		lockers, err := strconv.Atoi(words[2])
		if err != nil {
			return "", err
		}
		millis, err := strconv.Atoi(words[3])
		if err != nil {
			return "", err
		}
		return p.cycles(name, lockers, time.Duration(millis)*time.Millisecond)
	}
	return "", fmt.Errorf("no such command: %s", verb)
}

func (p *peer) got(name string, lost <-chan struct{}, release func() error, err error) (string, error) {
	if err != nil {
		return "", err
	}
	if lost == nil {
		return "busy", nil
	}
	p.held[name] = held{release, lost}
	return "held", nil
}

// A number in a file that only the lock protects. One session for all rounds, and no lock-delay: nothing dies here.
func (p *peer) count(name, file string, rounds int) error {
	session, _, err := p.client.Session().CreateNoChecks(&api.SessionEntry{TTL: "60s"}, nil)
	if err != nil {
		return err
	}
	for round := 0; round < rounds; round++ {
		lock, err := p.client.LockOpts(&api.LockOptions{Key: name, Session: session})
		if err != nil {
			return err
		}
		if _, err := lock.Lock(nil); err != nil {
			return err
		}
		if err := increment(file); err != nil {
			return err
		}
		if err := lock.Unlock(); err != nil {
			return err
		}
		if round%100 == 0 {
			if _, _, err := p.client.Session().Renew(session, nil); err != nil {
				return err
			}
		}
	}
	_, err = p.client.Session().Destroy(session, nil)
	return err
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
