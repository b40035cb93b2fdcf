//go:build linux

package main

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/underlay-ccm/underlay/internal/connectivity/probe"
)

// probeCommand returns the hidden command of the pods of underlayctl connectivity. It is part of
// the agent because every node has the agent's image, even without access to a registry.
func probeCommand() *cobra.Command {
	root := &cobra.Command{
		Use: "probe", Short: "Be a pod of underlayctl connectivity", Hidden: true, Args: cobra.NoArgs,
	}
	var name, listen string
	serve := &cobra.Command{
		Use: "serve", Short: "Serve requests under a name", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return probe.Serve(cmd.Context(), name, listen)
		},
	}
	serve.Flags().StringVar(&name, "name", "", "The name to reply with.")
	serve.Flags().StringVar(&listen, "listen", "", "Where to listen, TCP and UDP.")
	var from, world string
	var settle time.Duration
	query := &cobra.Command{
		Use: "ask", Short: "Send all requests, and write the results", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return probe.Run(cmd.Context(), from, world, settle, cmd.OutOrStdout())
		},
	}
	query.Flags().StringVar(&from, "from", "", "The node that sends the requests.")
	query.Flags().StringVar(&world, "world", "", "File with the destinations.")
	query.Flags().DurationVar(&settle, "settle", 0, "How long a failing request is retried.")
	root.AddCommand(serve, query)
	return root
}
