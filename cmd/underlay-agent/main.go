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
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
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
	root.AddCommand(runCommand(), checkCommand(), cleanupCommand(), probeCommand())
	return root
}

// versionLine returns the output of --version, because verflag would print the name Kubernetes.
func versionLine(cmd *cobra.Command) (line string, requested bool) {
	v := version.Get()
	line = fmt.Sprintln(cmd.Root().Name(), v.GitVersion, v.Platform, v.GoVersion)
	return line, cmd.Flag("version").Value.String() == string(verflag.VersionTrue)
}

func runCommand() *cobra.Command {
	o := defaults()
	cmd := &cobra.Command{
		Use: "run", Short: "Keep this node's network as it should be", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return run(cmd.Context(), o, registry{}) },
	}
	o.machineFlags(cmd.Flags())
	o.clusterFlags(cmd.Flags())
	o.serviceFlags(cmd.Flags())
	return cmd
}

func checkCommand() *cobra.Command {
	o := defaults()
	cmd := &cobra.Command{
		Use: "check", Short: "Show the changes that run would make now, and why; change nothing",
		Args: cobra.NoArgs,
		Long: "Check shows every route that this node should have and every change that run\nwould make now. It ends with status 1 if something needs a person.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return check(cmd.Context(), o, cmd.OutOrStdout())
		},
	}
	o.machineFlags(cmd.Flags())
	o.clusterFlags(cmd.Flags())
	return cmd
}

func cleanupCommand() *cobra.Command {
	o := defaults()
	cmd := &cobra.Command{
		Use: "cleanup", Short: "Take away everything that run has made on this machine",
		Args: cobra.NoArgs,
		Long: "Cleanup removes the routes, proxy ARP entries, packet filter, CNI configuration\nand kernel settings that run has created, without the API server. Stop run\nfirst, or it creates them again.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return cleanup(cmd.Context(), o, cmd.OutOrStdout())
		},
	}
	o.machineFlags(cmd.Flags())
	return cmd
}
