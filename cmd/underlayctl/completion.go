package main

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/underlay-ccm/underlay/internal/survey"
)

// completing is how long somebody waits for a completion.
const completing = 3 * time.Second

// completeFiles completes by the names of files the flags that name one, and nothing else.
func completeFiles(root *cobra.Command) {
	root.CompletionOptions.SetDefaultShellCompDirective(cobra.ShellCompDirectiveNoFileComp)
	files := []string{"kubeconfig", "cloud-config", "token-file"}
	var each func(*cobra.Command)
	each = func(cmd *cobra.Command) {
		for _, name := range files {
			// An error says that the command has no such flag, or has its parent's.
			_ = cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(nil, cobra.ShellCompDirectiveDefault))
		}
		for _, below := range cmd.Commands() {
			each(below)
		}
	}
	each(root)
}

// completeNames completes by what the API server tells, without the names in besides. What it
// doesn't tell in time is left to the person.
func (o *options) completeNames(
	tell func(context.Context, kubernetes.Interface) ([]string, error), besides *[]string,
) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		const directive = cobra.ShellCompDirectiveNoFileComp
		client, err := o.client()
		if err != nil {
			return nil, directive
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), completing)
		defer cancel()
		names, err := tell(ctx, client)
		if err != nil {
			return nil, directive
		}
		return slices.DeleteFunc(names, func(name string) bool {
			return !strings.HasPrefix(name, typed) || besides != nil && slices.Contains(*besides, name)
		}), directive
	}
}

// completeArgument completes the only argument of a command by what the API server tells.
func (o *options) completeArgument(tell func(context.Context, kubernetes.Interface) ([]string, error)) cobra.CompletionFunc {
	first := o.completeNames(tell, nil)
	return func(cmd *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return first(cmd, args, typed)
	}
}

// nodeNames are all Nodes'.
func nodeNames(ctx context.Context, client kubernetes.Interface) (names []string, err error) {
	list, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		return nil, err
	}
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	return names, nil
}

// serviceNames are those of Services of type LoadBalancer.
func serviceNames(ctx context.Context, client kubernetes.Interface) (names []string, err error) {
	list, err := client.CoreV1().Services("").List(ctx, metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		return nil, err
	}
	for i := range list.Items {
		if s := &list.Items[i]; s.Spec.Type == corev1.ServiceTypeLoadBalancer {
			names = append(names, survey.NameOf(s).String())
		}
	}
	return names, nil
}

// completeContexts completes by the contexts of the kubeconfig.
func (o *options) completeContexts(_ *cobra.Command, _ []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
	const directive = cobra.ShellCompDirectiveNoFileComp
	known, err := o.kubeconfigs().Load()
	if err != nil {
		return nil, directive
	}
	other := func(name string) bool { return !strings.HasPrefix(name, typed) }
	return slices.DeleteFunc(slices.Sorted(maps.Keys(known.Contexts)), other), directive
}
