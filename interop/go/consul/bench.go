package main

import (
	"fmt"
	"time"

	"github.com/hashicorp/consul/api"
)

// A session without checks and without a lock-delay, which Go's client cannot ask for: the shortest that it can.
func (p *peer) session() (string, error) {
	entry := &api.SessionEntry{TTL: "60s", LockDelay: time.Millisecond, Behavior: api.SessionBehaviorDelete}
	id, _, err := p.client.Session().CreateNoChecks(entry, nil)
	return id, err
}

// Two transactions of a cycle and nothing else: a key is taken by a session, and deleted.
func (p *peer) bare(key string, slice time.Duration) (string, error) {
	session, err := p.session()
	if err != nil {
		return "", err
	}
	count, kv := 0, p.client.KV()
	lock := api.KVTxnOps{{Verb: api.KVLock, Key: key, Session: session}, {Verb: api.KVGet, Key: key}}
	remove := api.KVTxnOps{{Verb: api.KVGet, Key: key}, {Verb: api.KVDelete, Key: key}}
	for end := time.Now().Add(slice); time.Now().Before(end); count++ {
		for _, ops := range []api.KVTxnOps{lock, remove} {
			done, answer, _, err := kv.Txn(ops, nil)
			if err != nil {
				return "", err
			}
			if !done {
				return "", fmt.Errorf("%v", answer.Errors)
			}
		}
	}
	_, err = p.client.Session().Destroy(session, nil)
	return fmt.Sprintf("cycles %d", count), err
}

// api.Lock by lockers with a session of their own each.
func (p *peer) cycles(key string, lockers int, slice time.Duration) (string, error) {
	counts, failures := make(chan int, lockers), make(chan error, lockers)
	var sessions []string
	for i := 0; i < lockers; i++ {
		session, err := p.session()
		if err != nil {
			return "", err
		}
		sessions = append(sessions, session)
	}
	end := time.Now().Add(slice)
	for _, session := range sessions {
		go func() {
			count := 0
			for ; time.Now().Before(end); count++ {
				lock, err := p.client.LockOpts(&api.LockOptions{Key: key, Session: session})
				if err == nil {
					_, err = lock.Lock(nil)
				}
				if err == nil {
					err = lock.Unlock()
				}
				if err != nil {
					failures <- err
					return
				}
			}
			counts <- count
		}()
	}
	total := 0
	for range sessions {
		select {
		case count := <-counts:
			total += count
		case err := <-failures:
			return "", err
		}
	}
	for _, session := range sessions {
		if _, err := p.client.Session().Destroy(session, nil); err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("cycles %d", total), nil
}
