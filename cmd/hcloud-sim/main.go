// Command hcloud-sim serves a simulated Hetzner Cloud project and the Robot web service of
// dedicated servers over HTTP, for tests and for local use. It contains only wiring: the APIs are
// implemented in hcloudsim and hcloudsim/robotsim. It must never be reachable from outside the
// machine, because its admin listener requires no authentication.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/pflag"

	"github.com/underlay-ccm/underlay/hcloudsim"
	"github.com/underlay-ccm/underlay/hcloudsim/robotsim"
)

// stopWithin limits the time for requests to end on shutdown.
const stopWithin = 5 * time.Second

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	switch {
	case errors.Is(err, pflag.ErrHelp):
	case err != nil:
		fmt.Fprintf(os.Stderr, "hcloud-sim: %v\n", err)
		os.Exit(1)
	}
}

// run serves until ctx ends, or runs the measure command. It writes logs to diagnostics.
func run(ctx context.Context, args []string, out, diagnostics io.Writer) error {
	if len(args) > 0 && args[0] == "measure" {
		cmd := measureCommand(out, diagnostics, os.Getenv)
		cmd.SetArgs(args[1:])
		return cmd.ExecuteContext(ctx)
	}
	config, err := parseFlags(args, out)
	if err != nil {
		return err
	}
	logger := slog.New(slog.NewTextHandler(diagnostics, nil))
	// Each simulator queries the other: the cloud needs the addresses of the Robot account, Robot
	// needs the subnets coupled with a vSwitch.
	var robot *robotsim.Simulator
	config.options.Owned = func(ip netip.Addr) bool { return robot.Owns(ip) }
	config.options.OnRequest = func(r hcloudsim.Request) { logRequest(ctx, logger, "api", r) }
	sim := hcloudsim.New(config.options)
	config.robot.options.CloudSubnets = robotsim.Coupled(sim)
	config.robot.options.OnRequest = func(r robotsim.Request) { logRequest(ctx, logger, "robot", r) }
	robot = robotsim.New(config.robot.options)
	if err := errors.Join(config.seed.Robot.plant(robot), config.seed.plant(sim)); err != nil {
		return err
	}
	if len(config.state) > 0 {
		if err := sim.Restore(config.state); err != nil {
			return fmt.Errorf("--state: %w", err)
		}
	}
	if config.profile != "" {
		logger.Info("behaving as a measured cloud", config.origin()...)
	}
	if config.options.Token == "" {
		logger.Warn("every token is accepted; set --token or --token-file to check it")
	}
	if config.robot.listen != "" && config.robot.options.User == "" {
		logger.Warn("every user of the Robot web service is accepted; set --robot-user and " +
			"--robot-password-file to check them")
	}
	return serve(ctx, logger, []listening{
		{"api", config.listen, sim},
		{"robot", config.robot.listen, robot},
		{"admin", config.adminListen, admin(sim, robot)},
	})
}

func admin(cloud *hcloudsim.Simulator, robot *robotsim.Simulator) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", cloud.Admin())
	mux.Handle("/_sim/robot/", robot.Admin())
	return mux
}

// listening is a handler with its listen address; empty: disabled.
type listening struct {
	name, address string
	handler       http.Handler
}

// serve runs all servers until ctx ends or one of them fails.
func serve(ctx context.Context, logger *slog.Logger, all []listening) error {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	var servers []*http.Server
	for _, l := range all {
		if l.address == "" {
			continue
		}
		listener, err := net.Listen("tcp", l.address)
		if err != nil {
			return fmt.Errorf("listening for %s on %s: %w", l.name, l.address, err)
		}
		server := &http.Server{Handler: l.handler, ReadHeaderTimeout: stopWithin}
		servers = append(servers, server)
		defer server.Close()
		logger.Info("listening", "for", l.name, "address", listener.Addr().String())
		go func() { fail(fmt.Errorf("serving %s: %w", l.name, server.Serve(listener))) }()
	}
	<-ctx.Done()
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	logger.Info("stopping")
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopWithin)
	defer cancel()
	var errs []error
	for _, server := range servers {
		errs = append(errs, server.Shutdown(grace))
	}
	return errors.Join(errs...)
}

func logRequest(ctx context.Context, logger *slog.Logger, service string, r hcloudsim.Request) {
	attributes := []slog.Attr{
		slog.String("for", service), slog.String("method", r.Method), slog.String("path", r.Path),
		slog.Int("status", r.Status), slog.String("user_agent", r.UserAgent),
	}
	if r.Query != "" {
		attributes = append(attributes, slog.String("query", r.Query))
	}
	if r.Code != "" {
		attributes = append(attributes, slog.String("code", r.Code))
	}
	if r.Dropped {
		attributes = append(attributes, slog.Bool("dropped", true))
	}
	logger.LogAttrs(ctx, slog.LevelInfo, "request", attributes...)
}
