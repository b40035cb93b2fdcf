package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/component-base/version"

	"github.com/underlay-ccm/underlay/internal/doctor"
	"github.com/underlay-ccm/underlay/internal/survey"
	"github.com/underlay-ccm/underlay/internal/table"
)

const long = `underlayctl shows and checks the network of a cluster with Underlay: each Node's
podCIDRs, routes and their owners, the health of load balancer targets, the node
that holds each address, and problems. It only reads, except for one command:
connectivity starts pods, in a dedicated namespace, and removes them.

The configuration is that of underlay-ccm: its flags from its Deployment, and
the rest from the ConfigMap that it mounts. Data of the cloud requires a token
with read permission; without one, missing data is reported.

Exit codes: 0 no problem; doctor: 1 if the worst finding is a warning, 2 if it
is an error; connectivity: 1 if a path is closed, 2 if some could not be tested;
3 if the command failed, and of doctor also if the configuration or the Nodes
could not be read.`

// plugin is the name prefix of kubectl plugins.
const plugin = "kubectl-"

func newCommand(w process) *cobra.Command {
	o := &options{}
	root := &cobra.Command{
		Use: "underlayctl", Short: "Show and check the network of a cluster with Underlay", Long: long,
		SilenceUsage: true, SilenceErrors: true,
	}
	v := version.Get()
	root.Version = v.GitVersion + " " + v.Platform + " " + v.GoVersion
	root.SetVersionTemplate("underlayctl {{.Version}}\n")
	if called, is := strings.CutPrefix(w.name, plugin); is {
		// The suffix is the subcommand of kubectl.
		root.Use = called
		root.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl " + called}
	}
	o.add(root.PersistentFlags())
	_ = root.RegisterFlagCompletionFunc("output",
		cobra.FixedCompletions([]string{"table", "wide", "json", "yaml"},
			cobra.ShellCompDirectiveNoFileComp))
	_ = root.RegisterFlagCompletionFunc("context", o.completeContexts)
	root.AddCommand(
		show(w, o, "pools", "The usage of the pools of podCIDRs", survey.PoolsParts, survey.PoolsOf),
		show(w, o, "nodes", "Every Node's podCIDRs, route and conditions, and its reason for waiting",
			survey.NodesParts, survey.NodesOf),
		show(w, o, "routes", "The network's route table: owners, limit and drift of routes",
			survey.RoutesParts, survey.RoutesOf),
		show(w, o, "lb", "Services, their load balancers, and the health of targets",
			survey.LoadBalancersParts, survey.LoadBalancersOf),
		show(w, o, "addresses",
			"Addresses of Services that nodes hold: their holders, and waiting Services",
			survey.AddressesParts, survey.AddressesOf),
		doctorCommand(w, o), inspect(w, o), connectivityCommand(w, o), uiCommand(w, o),
	)
	completeFiles(root)
	return root
}

func show(
	w process, o *options, name, short string, parts survey.Parts,
	of func(*survey.Snapshot) (table.Page, error),
) *cobra.Command {
	var watch bool
	cmd := &cobra.Command{
		Use: name, Short: short, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !watch {
				return o.show(cmd.Context(), w, survey.Want{Parts: parts}, of)
			}
			watcher, err := o.watch(cmd.Context(), w)
			if err != nil {
				return err
			}
			return (&shower{w: w, o: o, title: cmd.CommandPath(), of: of}).follow(cmd.Context(), watcher)
		},
	}
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "Keep running and show each change: in place on a terminal, otherwise one below the other with the time; -o json: one document per line. Ctrl-C exits.")
	return cmd
}

// show collects once, and prints the page.
func (o *options) show(
	ctx context.Context, w process, want survey.Want, of func(*survey.Snapshot) (table.Page, error),
) error {
	s, err := o.look(ctx, w, want)
	if err != nil {
		return err
	}
	page, err := of(s)
	if err != nil {
		return err
	}
	return o.print(w, page, page.Values())
}

func doctorCommand(w process, o *options) *cobra.Command {
	return &cobra.Command{
		Use: "doctor", Short: "Check everything: findings with their severity and remedy",
		Args: cobra.NoArgs,
		Long: "Check everything: findings with their severity and remedy.\n\nExit codes: 0 no problem, 1 the worst finding is a warning, 2 it is an error,\n3 the command failed, or the configuration or the Nodes could not be read.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := o.look(cmd.Context(), w, survey.Want{Parts: survey.Everything})
			if err != nil {
				return err
			}
			d := doctor.Diagnose(s)
			if err := o.print(w, d.Page(), d); err != nil {
				return err
			}
			if err := unexamined(s); err != nil {
				return err
			}
			return outcome(severityCode(d.Findings))
		},
	}
}

// unexamined returns an error if the parts of nearly every check could not be read, so that
// scripts don't take the cluster for healthy. An invalid configuration was read: it is a
// finding.
func unexamined(s *survey.Snapshot) error {
	needed := survey.PartConfig | survey.PartNodes
	if len(s.ConfigErrors) > 0 {
		needed = survey.PartNodes
	}
	if err := s.Require(needed); err != nil {
		return fmt.Errorf("the cluster was hardly checked: %w", err)
	}
	return nil
}

func severityCode(all []doctor.Finding) int {
	switch doctor.Worst(all) {
	case doctor.Error:
		return 2
	case doctor.Warning:
		return 1
	}
	return 0
}

func inspect(w process, o *options) *cobra.Command {
	cmd := &cobra.Command{
		Use: "inspect", Short: "All data about one Node or Service in chronological order, or a pod's NetworkPolicies",
		Args: cobra.NoArgs, RunE: func(*cobra.Command, []string) error {
			return fmt.Errorf("name the object to inspect: node NAME, service NAMESPACE/NAME, or pod NAMESPACE/NAME")
		},
	}
	object := func(kind, name, short string) *cobra.Command {
		return &cobra.Command{
			Use: strings.ToLower(kind) + " " + name, Short: short, Args: cobra.ExactArgs(1),
			ValidArgsFunction: o.completeArgument(strings.ToLower(kind) + "s"),
			RunE: func(cmd *cobra.Command, args []string) error {
				want, of, err := survey.ParseObject(kind + "/" + args[0])
				if err != nil {
					return fmt.Errorf("%q is no %s: write %s", args[0], kind, name)
				}
				return o.show(cmd.Context(), w, want, of)
			},
		}
	}
	cmd.AddCommand(
		object("Node", "NAME", "All data about a Node"),
		object("Service", "NAMESPACE/NAME", "All data about a Service and its load balancer"),
		inspectPod(w, o),
	)
	return cmd
}
