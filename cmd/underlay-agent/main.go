//go:build linux

// Command underlay-agent makes podCIDRs a pod network on one machine: kernel routes to the other
// nodes, the CNI configuration, masquerading and the inbound filter, and the sysctls that
// forwarding needs. This package only wires flags and the configuration file to constructors.
//
// It must never remove anything when it stops, so that an upgrade drops no packet; the
// subcommand cleanup does that.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/component-base/cli"
	"k8s.io/component-base/version"
	"k8s.io/component-base/version/verflag"
)

const long = `underlay-agent runs on every node and keeps its network in step with the
cluster's Nodes: kernel routes, CNI configuration, masquerading, inbound filter
and kernel settings.

It reads the file that the cloud controller manager reads, and needs no token.`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	command := newCommand()
	command.SetContext(ctx)
	if err := cli.RunNoErrOutput(command); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func newCommand() *cobra.Command {
	root := &cobra.Command{
		Use: "underlay-agent", Long: long, SilenceUsage: true, SilenceErrors: true,
		// Without RunE, cobra would not process --version.
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.PersistentPreRun = func(cmd *cobra.Command, _ []string) {
		if line, requested := versionLine(cmd); requested {
			fmt.Fprint(cmd.OutOrStdout(), line)
			os.Exit(0)
		}
		verflag.PrintAndExitIfRequested() // --version=raw
	}
	verflag.AddFlags(root.PersistentFlags())
	root.AddCommand(
		subcommand("run", "Keep this node's network as it should be", "",
			func(ctx context.Context, o *options, _ io.Writer) error { return run(ctx, o, registry{}) },
			(*options).machineFlags, (*options).clusterFlags, (*options).serviceFlags),
		subcommand("check", "Show the changes that run would make now, and why; change nothing",
			"Check shows every route that this node should have and every change that run\nwould make now. It ends with status 1 if something needs a person.",
			check, (*options).machineFlags, (*options).clusterFlags),
		subcommand("cleanup", "Take away everything that run has made on this machine",
			"Cleanup removes the routes, proxy ARP entries, packet filter, CNI configuration\nand kernel settings that run has created, without the API server. Stop run\nfirst, or it creates them again.",
			cleanup, (*options).machineFlags),
		probeCommand())
	return root
}

// versionLine returns the output of --version, because verflag would print the name Kubernetes.
func versionLine(cmd *cobra.Command) (line string, requested bool) {
	v := version.Get()
	line = fmt.Sprintln(cmd.Root().Name(), v.GitVersion, v.Platform, v.GoVersion)
	return line, cmd.Flag("version").Value.String() == string(verflag.VersionTrue)
}

// subcommand returns a command with groups of the options as flags.
func subcommand(
	use, short, long string, run func(context.Context, *options, io.Writer) error,
	groups ...func(*options, *pflag.FlagSet),
) *cobra.Command {
	o := defaults()
	cmd := &cobra.Command{
		Use: use, Short: short, Long: long, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return run(cmd.Context(), o, cmd.OutOrStdout())
		},
	}
	for _, add := range groups {
		add(o, cmd.Flags())
	}
	return cmd
}
