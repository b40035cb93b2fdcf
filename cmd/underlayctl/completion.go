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

// completing is the timeout of a completion.
const completing = 3 * time.Second

// completeFiles completes file names for flags that take a file, and nothing for all others.
func completeFiles(root *cobra.Command) {
	root.CompletionOptions.SetDefaultShellCompDirective(cobra.ShellCompDirectiveNoFileComp)
	files := []string{"kubeconfig", "cloud-config", "token-file"}
	var each func(*cobra.Command)
	each = func(cmd *cobra.Command) {
		for _, name := range files {
			// It fails if the command lacks the flag or inherits it.
			_ = cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(nil, cobra.ShellCompDirectiveDefault))
		}
		for _, below := range cmd.Commands() {
			each(below)
		}
	}
	each(root)
}

type lister func(context.Context, kubernetes.Interface) ([]string, error)

// completeNames completes names from the API server except besides, if it returns them in time.
func (o *options) completeNames(list lister, besides *[]string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(cmd.Context(), completing)
		defer cancel()
		var names []string
		if client, err := o.client(); err == nil {
			names, _ = list(ctx, client)
		}
		return slices.DeleteFunc(names, func(name string) bool {
			return !strings.HasPrefix(name, typed) || slices.Contains(*besides, name)
		}), cobra.ShellCompDirectiveNoFileComp
	}
}

func (o *options) completeArgument(list lister) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return o.completeNames(list, &[]string{})(cmd, args, typed)
	}
}

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

// serviceNames returns the Services of type LoadBalancer.
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

func (o *options) completeContexts(_ *cobra.Command, _ []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
	var names []string
	if known, err := o.kubeconfigs().Load(); err == nil {
		names = slices.Sorted(maps.Keys(known.Contexts))
	}
	other := func(name string) bool { return !strings.HasPrefix(name, typed) }
	return slices.DeleteFunc(names, other), cobra.ShellCompDirectiveNoFileComp
}
