package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/underlay-ccm/underlay/internal/survey"
	"github.com/underlay-ccm/underlay/internal/webui/server"
)

const uiLong = `Serve a live page for a browser on this machine: the findings of doctor, Nodes with
their podCIDRs, load balancers and their targets, addresses that nodes hold, the route
table, the usage of pools, and the timeline of each Node and Service.

It listens only on 127.0.0.1 and prints the page's URL, which contains a secret key, so
other users of this machine can't open it. From another machine, forward the port:
ssh -L. The page is read-only and loads nothing from other hosts. Ctrl-C exits.`

func uiCommand(w process, o *options) *cobra.Command {
	var port uint16
	cmd := &cobra.Command{
		Use: "ui", Short: "All of it as a live page in a browser on this machine", Long: uiLong,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			watcher, err := o.watch(cmd.Context(), w)
			if err != nil {
				return err
			}
			listener, err := server.Listen(cmd.Context(), port)
			if err != nil {
				return err
			}
			page := server.New(watcher)
			fmt.Fprintf(w.stdout, "The page is at %s\nIt is for this machine alone, and for looking only. "+
				"Ctrl-C ends it.\n", page.URL(listener))
			return page.Serve(cmd.Context(), listener)
		},
	}
	cmd.Flags().Uint16Var(&port, "port", 0,
		"Port of the page on 127.0.0.1. Default: any free one.")
	return cmd
}

// watch collects everything once, so that lasting errors are returned at once.
func (o *options) watch(ctx context.Context, w process) (*survey.Watcher, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	ctx, cancel := o.patience(ctx)
	defer cancel()
	from, err := o.sources(ctx, w, survey.Everything)
	if err != nil {
		return nil, err
	}
	return survey.Watch(ctx, from)
}
