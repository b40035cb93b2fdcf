package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/underlay-ccm/underlay/internal/editdistance"
	"github.com/underlay-ccm/underlay/internal/measure"
	"github.com/underlay-ccm/underlay/internal/measure/project"
)

// chosen are the facts that a flag names, without the spaces and empty places of a list.
func chosen(flag string, names []string) (ids []measure.FactID, err error) {
	var errs []error
	for _, name := range names {
		id := measure.FactID(strings.TrimSpace(name))
		if id == "" {
			continue
		}
		if _, known := measure.Of(id); !known {
			remedy := meant(string(id))
			errs = append(errs, fmt.Errorf("--%s names %q, which is no fact: %s", flag, id, remedy))
			continue
		}
		ids = append(ids, id)
	}
	return ids, errors.Join(errs...)
}

// meant is the remedy for a name that no fact has.
func meant(name string) string {
	nearest, best := "", len(name)/3+1
	for _, f := range measure.Facts() {
		if away := editdistance.Between(name, string(f.ID)); away <= best {
			nearest, best = string(f.ID), away-1
		}
	}
	if nearest == "" {
		return "see underlayctl measure facts"
	}
	return "did you mean " + nearest + "?"
}

// completeFacts completes a list of facts by those that can be found out and aren't in it.
func completeFacts(
	_ *cobra.Command, _ []string, typed string,
) ([]cobra.Completion, cobra.ShellCompDirective) {
	before, last := "", typed
	if at := strings.LastIndex(typed, ","); at >= 0 {
		before, last = typed[:at+1], typed[at+1:]
	}
	named := strings.Split(before, ",")
	var out []cobra.Completion
	for _, f := range measure.Facts() {
		id := string(f.ID)
		if f.Needs.Impossible == "" && strings.HasPrefix(id, last) && !slices.Contains(named, id) {
			out = append(out, cobra.CompletionWithDesc(before+id, f.Question))
		}
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}

// completeFromCloud completes a flag by what the project tells. What it doesn't tell in time, or
// without a token, is left to the person.
func (m *measuring) completeFromCloud(
	w process, o *options, tell func(context.Context, *project.Project) ([]cobra.Completion, error),
) cobra.CompletionFunc {
	ask := func(ctx context.Context) ([]cobra.Completion, error) {
		ctx, cancel := context.WithTimeout(ctx, completing)
		defer cancel()
		cloud, err := m.access(ctx, w, o)
		if err != nil {
			return nil, err
		}
		name, err := newRun()
		if err != nil {
			return nil, err
		}
		p, err := cloud.project(name, project.Plan{}, nil)
		if err != nil {
			return nil, err
		}
		return tell(ctx, p)
	}
	const directive = cobra.ShellCompDirectiveNoFileComp
	return func(
		cmd *cobra.Command, _ []string, typed string,
	) ([]cobra.Completion, cobra.ShellCompDirective) {
		all, err := ask(cmd.Context())
		if err != nil {
			return nil, directive
		}
		other := func(c string) bool { return !strings.HasPrefix(c, typed) }
		return slices.DeleteFunc(all, other), directive
	}
}

// locations are those of the cloud.
func locations(ctx context.Context, p *project.Project) (out []cobra.Completion, err error) {
	all, err := p.Client().Location.All(ctx)
	for _, l := range all {
		out = append(out, cobra.CompletionWithDesc(l.Name, l.City))
	}
	return out, err
}

// runs are those that have left something in the project.
func runs(ctx context.Context, p *project.Project) (out []cobra.Completion, err error) {
	left, err := p.Leftovers(ctx)
	for _, l := range left {
		what := since(l.Since, time.Now()) + " old: " + made(l.Things, l.SSHKeys, 0)
		out = append(out, cobra.CompletionWithDesc(l.Run, what))
	}
	return out, err
}

// hideClusterFlags leaves out of the help of a command, and of those below it, the flags that no
// part of measure looks at. Those of the kubeconfig are for --token-secret.
func hideClusterFlags(cmd *cobra.Command) {
	cmd.SetHelpFunc(func(c *cobra.Command, args []string) {
		for _, name := range []string{"namespace", "cloud-config", "manager-flag"} {
			if f := c.InheritedFlags().Lookup(name); f != nil {
				f.Hidden = true
			}
		}
		c.Root().HelpFunc()(c, args)
	})
}
