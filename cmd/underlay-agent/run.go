//go:build linux

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"runtime/debug"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	"k8s.io/klog/v2"

	addressagent "github.com/underlay-ccm/underlay/addresses/agent"
	"github.com/underlay-ccm/underlay/internal/directory"
	"github.com/underlay-ccm/underlay/internal/kube"
	"github.com/underlay-ccm/underlay/internal/promauto"
	policyagent "github.com/underlay-ccm/underlay/policy/agent"
	"github.com/underlay-ccm/underlay/routes/agent"
)

// headerTimeout limits the time of clients for the headers of a request.
const headerTimeout = 5 * time.Second

// collectAt is the heap growth in percent that triggers garbage collection. The agent runs on
// every machine and is mostly idle, so memory costs more than collection. GOGC takes precedence.
// A memory limit would cost more: if Nodes need more, the collector runs permanently.
const collectAt = 40

// run runs until ctx is done, and removes nothing.
func run(ctx context.Context, o *options, reg promauto.Registry) error {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(collectAt)
	}
	s, err := o.settle()
	if err != nil {
		return err
	}
	m, err := o.open()
	if err != nil {
		return err
	}
	defer m.network.Close()
	m.held.used = s.addresses.Enabled()

	opened, err := tunnels(o.keyDir, s.Tunnels.Port, s.preshared)
	if err != nil {
		return err
	}
	devices := make([]agent.Tunnels, len(opened))
	for i, d := range opened {
		devices[i] = d
	}
	events := record.NewBroadcaster(record.WithContext(ctx))
	defer events.Shutdown()
	events.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: s.client.CoreV1().Events("")})
	nodes := directory.NewNodes(s.client, o.nodeName,
		kube.Light(corev1.NodeReady, corev1.NodeNetworkUnavailable, agent.PeersReachable))
	a, err := agent.New(agent.Config{
		Client: s.client, Nodes: nodes, Kernel: m.network, Devices: devices,
		Recorder: events.NewRecorder(scheme.Scheme, corev1.EventSource{
			Component: "underlay-agent", Host: o.nodeName,
		}),
		Registry: reg, Settings: s.Settings,
		Before: append(edges(m.before), m.policies), After: edges(m.after), Period: o.period,
	})
	if err != nil {
		return err
	}
	enforcer, err := policyagent.New(policyagent.Config{
		Client: s.client, Node: o.nodeName, Nodes: nodes, Table: m.policies.table, Registry: reg,
		Off: !s.networkPolicy, LogGroup: s.policyLog,
	})
	if err != nil {
		return err
	}
	m.policies.agent = enforcer
	var holder *addressagent.Agent
	if holds(s.addresses) || o.heldBefore() {
		if holder, err = o.holder(s, m, nodes, reg); err != nil {
			return err
		}
	}
	return together(ctx, o, nodes, a, enforcer, holder)
}

// together runs the agents, the holder of addresses if any, and the server, until one of them ends.
func together(
	ctx context.Context, o *options, nodes *directory.Nodes, a *agent.Agent,
	enforcer *policyagent.Agent, holder *addressagent.Agent,
) error {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	listener, err := net.Listen("tcp", net.JoinHostPort(o.bindAddress, strconv.Itoa(o.port)))
	if err != nil {
		return fmt.Errorf("--bind-address, --port: %w", err)
	}
	ready := func() error {
		switch err := nodes.Ready(); {
		case err != nil:
			return err
		case holder != nil:
			return errors.Join(a.Ready(), holder.Ready())
		}
		return a.Ready()
	}
	server := &http.Server{Handler: endpoints(a, ready), ReadHeaderTimeout: headerTimeout}
	defer server.Close()
	go func() { fail(fmt.Errorf("serving health and metrics: %w", server.Serve(listener))) }()

	var working sync.WaitGroup
	defer working.Wait()
	defer fail(nil)
	working.Go(func() { nodes.Run(ctx) })
	working.Go(func() { releaseMemory(ctx) })
	working.Go(func() { enforcer.Run(ctx) })
	if holder != nil {
		working.Go(func() { holder.Run(ctx) })
		working.Go(func() { holder.ServeAlive(ctx) })
	}
	klog.FromContext(ctx).Info("Running", "node", o.nodeName, "address", listener.Addr().String())
	err = a.Run(ctx)
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
		return cmp.Or(cause, err)
	}
	klog.FromContext(ctx).Info("Stopped; everything on this node stays as it is")
	return nil
}

func endpoints(a *agent.Agent, ready func() error) http.Handler {
	mux := http.NewServeMux()
	reply := func(w http.ResponseWriter, problem error) {
		if problem != nil {
			http.Error(w, problem.Error(), http.StatusServiceUnavailable)
			return
		}
		_, _ = fmt.Fprintln(w, "ok")
	}
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, a.Alive(time.Now()))
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) { reply(w, ready()) })
	mux.Handle("GET /metrics", legacyregistry.Handler())
	return mux
}

type registry struct{}

func (registry) Register(m metrics.Registerable) error { return legacyregistry.Register(m) }
