//go:build linux

package echo

import (
	"io"
	"net"
	"sync"
)

// Repeater echoes all data until it is closed.
type Repeater struct {
	listener net.Listener
	ended    sync.WaitGroup

	mu     sync.Mutex
	conns  map[net.Conn]struct{}
	closed bool
}

// Repeat serves a listener, which the Repeater closes.
func Repeat(l net.Listener) *Repeater {
	r := &Repeater{listener: l, conns: map[net.Conn]struct{}{}}
	r.ended.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			r.ended.Go(func() { r.talk(conn) })
		}
	})
	return r
}

func (r *Repeater) talk(conn net.Conn) {
	defer conn.Close()
	r.mu.Lock()
	r.conns[conn] = struct{}{}
	closed := r.closed
	r.mu.Unlock()
	if !closed {
		_, _ = io.Copy(conn, conn) // until either side closes it
	}
	r.mu.Lock()
	delete(r.conns, conn)
	r.mu.Unlock()
}

// Close closes the listener and every connection. It may be called more than once.
func (r *Repeater) Close() {
	_ = r.listener.Close()
	r.mu.Lock()
	r.closed = true
	for conn := range r.conns {
		_ = conn.Close()
	}
	r.mu.Unlock()
	r.ended.Wait()
}
