package main

import (
	"context"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protowire"
)

// Two transactions of a cycle and nothing else: a key is made with our lease, and deleted.
func (p *peer) bare(ctx context.Context, key string, slice time.Duration) (string, error) {
	lease := clientv3.WithLease(p.session.Lease())
	count, client := 0, p.session.Client()
	for end := time.Now().Add(slice); time.Now().Before(end); count++ {
		absent := clientv3.Compare(clientv3.CreateRevision(key), "=", 0)
		if _, err := client.Txn(ctx).If(absent).Then(clientv3.OpPut(key, "", lease)).Commit(); err != nil {
			return "", err
		}
		there := clientv3.Compare(clientv3.CreateRevision(key), ">", 0)
		if _, err := client.Txn(ctx).If(there).Then(clientv3.OpDelete(key)).Commit(); err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("cycles %d", count), nil
}

// Messages as they are on the wire: the types of the Lock service are in etcd's server.
type wire struct{ bytes []byte }

func (wire) Name() string                  { return "proto" }
func (wire) Marshal(v any) ([]byte, error) { return v.(*wire).bytes, nil }
func (wire) Unmarshal(bytes []byte, v any) error {
	v.(*wire).bytes = append([]byte(nil), bytes...)
	return nil
}
func field(to []byte, number protowire.Number, value []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(to, number, protowire.BytesType), value)
}

// The key in a LockResponse.
func (w *wire) key() ([]byte, error) {
	for rest := w.bytes; len(rest) > 0; {
		number, kind, length := protowire.ConsumeTag(rest)
		if length < 0 {
			return nil, protowire.ParseError(length)
		}
		rest = rest[length:]
		if number == 2 && kind == protowire.BytesType {
			key, length := protowire.ConsumeBytes(rest)
			return key, protowire.ParseError(length)
		}
		length = protowire.ConsumeFieldValue(number, kind, rest)
		if length < 0 {
			return nil, protowire.ParseError(length)
		}
		rest = rest[length:]
	}
	return nil, fmt.Errorf("an answer without a key")
}

// The Lock service's Lock and Unlock, by lockers with a lease of their own each.
func (p *peer) rpc(ctx context.Context, name string, lockers int, slice time.Duration) (string, error) {
	client := p.session.Client()
	counts, failures := make(chan int, lockers), make(chan error, lockers)
	var sessions []*concurrency.Session
	for i := 0; i < lockers; i++ {
		session, err := concurrency.NewSession(client, concurrency.WithTTL(60))
		if err != nil {
			return "", err
		}
		sessions = append(sessions, session)
	}
	end, codec := time.Now().Add(slice), grpc.ForceCodec(wire{})
	for _, session := range sessions {
		go func() {
			ask := field(nil, 1, []byte(name))
			ask = protowire.AppendVarint(protowire.AppendTag(ask, 2, protowire.VarintType), uint64(session.Lease()))
			count, conn := 0, client.ActiveConnection()
			for ; time.Now().Before(end); count++ {
				locked := &wire{}
				if err := conn.Invoke(ctx, "/v3lockpb.Lock/Lock", &wire{ask}, locked, codec); err != nil {
					failures <- err
					return
				}
				key, err := locked.key()
				if err == nil {
					err = conn.Invoke(ctx, "/v3lockpb.Lock/Unlock", &wire{field(nil, 1, key)}, &wire{}, codec)
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
		if err := session.Close(); err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("cycles %d", total), nil
}
