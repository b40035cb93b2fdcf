// Command demo shows Underlay at work: a real Kubernetes control plane, the real underlay-ccm, a
// simulated cloud, and machines that join as kubelets would. It shows what it observes in watches
// of the API server and in the cloud; each step has a deadline, and a step that fails ends the
// demo. As root it ends with real packets, in a second cluster in network namespaces.
//
// Without -once the cluster remains until Ctrl-C. It needs no root, listens on loopback and in its
// own namespaces only, and must never leave a process or a folder behind, except for the folder
// with the logs of a demo that failed.
//
// Exit codes: 0, every step succeeded; 1, one did not; 130, interrupted before the end.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"k8s.io/klog/v2"

	"github.com/underlay-ccm/underlay/test/demo/screen"
)

const (
	interrupted = 130 // 128 + SIGINT, as shells have it
	packetsFlag = "-packets"
)

func main() {
	once := flag.Bool("once", false, "end when the last step is done, instead of staying up until Ctrl-C")
	packets := flag.String(strings.TrimLeft(packetsFlag, "-"), "", "only show packets, with logs in this folder; what the demo starts itself with")
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "demo: unexpected argument %q: only flags are understood, see -help\n", flag.Arg(0))
		os.Exit(2)
	}
	// Also when the terminal is closed, or the reader of the output ends.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM,
		syscall.SIGHUP, syscall.SIGPIPE)
	// A second Ctrl-C ends the demo at once; the kernel ends its child processes.
	context.AfterFunc(ctx, stop)
	if *packets != "" {
		os.Exit(packetsShown(ctx, *packets, os.Stdout))
	}
	os.Exit(run(ctx, openTerminal(os.Stdout, os.Getenv), *once))
}

// run shows the demo and returns the exit code.
func run(ctx context.Context, t *terminal, once bool) int {
	folder, err := os.MkdirTemp("", "underlay-demo-")
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo: making its folder:", err)
		return 1
	}
	code := 1
	defer func() {
		if code != 1 {
			_ = os.RemoveAll(folder) // a leftover in the temporary folder
		}
	}()
	if err := quiet(filepath.Join(folder, "demo.log")); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		return code
	}
	code = show(ctx, t, folder, once)
	return code
}

// quiet redirects the logs of Kubernetes' libraries to a file.
func quiet(path string) error {
	log, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("opening its log: %w", err)
	}
	klog.LogToStderr(false)
	klog.SetOutput(log)
	return nil
}

// show runs all steps, then the tables, and without once waits for the end.
func show(ctx context.Context, t *terminal, folder string, once bool) int {
	first, steps := begin(), scenario()
	count := len(steps) + 2
	missing := noPackets()
	if missing == "" {
		count++
	}
	results := make([]screen.Result, 0, count)
	t.print("Underlay: pod networking and load balancers for rented machines.\n" +
		"The cloud is simulated, the machines are their kubelets' heartbeats; everything else is real.\n")
	t.print(t.Heading(1, count, first.title))
	manager, reader, err := build(ctx, t, folder)
	if err != nil {
		return t.end(ctx, append(results, screen.Result{Name: first.name, Title: first.title, Err: err}),
			folder)
	}
	defer os.Remove(manager) // the logs are enough after a failure
	defer os.Remove(reader)
	began := time.Now()
	d, err := start(ctx, t, folder, manager, first.limit)
	r := screen.Result{Name: first.name, Title: first.title, Took: time.Since(began), Err: err}
	results = append(results, r)
	if err != nil {
		return t.end(ctx, results, folder)
	}
	defer d.cluster.Stop()
	d.reader = reader
	t.print(t.Held(r))

	results = append(results, d.play(ctx, steps, count)...)
	if t.verdict(ctx, results) == 0 {
		results = append(results, t.last(ctx, len(steps)+2, count, doctorStep(), d.examine))
	}
	if missing != "" {
		t.print("\n" + t.Note("no packets and no tunnels are shown, and no agents run: "+missing))
	} else if t.verdict(ctx, results) == 0 {
		results = append(results, t.last(ctx, count, count, packetsStep(),
			func(ctx context.Context) error {
				return t.sendPackets(ctx, folder, manager, reader)
			}))
	}
	if code := t.verdict(ctx, results); code == 0 {
		d.print(d.Tables(d.state, d.timeline, everyMachine(), time.Now()))
	}
	code := t.end(ctx, results, folder)
	if once || code != 0 {
		return code
	}
	if err := d.hold(ctx); !errors.Is(err, context.Canceled) {
		fmt.Fprintln(os.Stderr, "demo:", err)
		return 1
	}
	t.print("\nstopping\n")
	return 0
}

// last is a step after the scenario.
func (t *terminal) last(
	ctx context.Context, number, count int, s step, do func(context.Context) error,
) screen.Result {
	t.print(t.Heading(number, count, s.title))
	t.print(t.Note(s.note))
	began := time.Now()
	ctx, cancel := context.WithTimeoutCause(ctx, s.limit, fmt.Errorf("%w: it may take %s", errLate, s.limit))
	defer cancel()
	r := screen.Result{Name: s.name, Title: s.title, Err: do(ctx)}
	r.Took = time.Since(began)
	if r.Err == nil {
		t.print(t.Held(r))
	}
	return r
}

// verdict is the exit code for these results.
func (t *terminal) verdict(ctx context.Context, results []screen.Result) int {
	for _, r := range results {
		switch {
		case r.Err != nil && ctx.Err() != nil:
			return interrupted
		case r.Err != nil:
			return 1
		}
	}
	return 0
}

// end shows the failure, if there is one, and the summary.
func (t *terminal) end(ctx context.Context, results []screen.Result, folder string) int {
	code := t.verdict(ctx, results)
	switch code {
	case interrupted:
		t.print("\ninterrupted\n")
		return code
	case 1:
		for _, r := range results {
			if r.Err != nil {
				t.print(t.Failure(r, folder))
			}
		}
	}
	t.print(t.Summary(results))
	return code
}
