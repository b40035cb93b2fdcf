package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	genericapiserver "k8s.io/apiserver/pkg/server"
)

// waitingRoom serves health checks on the secure port until the controllers' server takes over.
// It is a separate server on the same listener, because the controllers' server also starts
// controllers for its certificates, which can run only once.
type waitingRoom struct {
	server *http.Server
	door   *door
	reason atomic.Value // string
}

func openWaitingRoom(serving *genericapiserver.SecureServingInfo) (*waitingRoom, error) {
	listener, ok := serving.Listener.(deadliner)
	if !ok {
		return nil,
			fmt.Errorf("answering health checks on %s: can't be interrupted again", serving.Listener.Addr())
	}
	certificate, err := tls.X509KeyPair(serving.Cert.CurrentCertKeyContent())
	if err != nil {
		return nil, fmt.Errorf("the secure port's certificate: %w", err)
	}
	room := &waitingRoom{door: &door{deadliner: listener}}
	room.setReason("starting")
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, room.reason.Load().(string), http.StatusServiceUnavailable)
	})
	room.server = &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	go func() {
		_ = room.server.Serve(tls.NewListener(room.door, &tls.Config{
			Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12,
		}))
	}()
	return room, nil
}

// setReason sets the reason that /healthz returns.
func (r *waitingRoom) setReason(reason string) {
	if r != nil {
		r.reason.Store(reason)
	}
}

// close stops the server. The listener stays open for the next server.
func (r *waitingRoom) close() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = r.server.Shutdown(ctx)
	_ = r.door.SetDeadline(time.Time{})
}

// deadliner is a listener with an interruptible Accept, such as TCP's.
type deadliner interface {
	net.Listener
	SetDeadline(time.Time) error
}

// door is a listener that stays open when its server shuts down.
type door struct{ deadliner }

// Close interrupts Accept and keeps the listener open.
func (d *door) Close() error { return d.SetDeadline(time.Unix(1, 0)) }
