package main

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
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
			_ = cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(nil,
				cobra.ShellCompDirectiveDefault))
		}
		for _, below := range cmd.Commands() {
			each(below)
		}
	}
	each(root)
}

// completeNames completes names of the objects of a resource except besides, if the API server
// returns them in time.
func (o *options) completeNames(resource string, besides *[]string) cobra.CompletionFunc {
	return func(
		cmd *cobra.Command, _ []string, typed string,
	) ([]cobra.Completion, cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(cmd.Context(), completing)
		defer cancel()
		var names []string
		if client, err := o.client(); err == nil {
			var list metav1.PartialObjectMetadataList
			_ = client.CoreV1().RESTClient().Get().Resource(resource).
				VersionedParams(&metav1.ListOptions{ResourceVersion: "0"},
					scheme.ParameterCodec).Do(ctx).Into(&list)
			for _, object := range list.Items {
				names = append(names, strings.TrimPrefix(object.Namespace+"/"+object.Name, "/"))
			}
		}
		return slices.DeleteFunc(names, func(name string) bool {
			return !strings.HasPrefix(name, typed) || slices.Contains(*besides, name)
		}), cobra.ShellCompDirectiveNoFileComp
	}
}

func (o *options) completeArgument(resource string) cobra.CompletionFunc {
	return func(
		cmd *cobra.Command, args []string, typed string,
	) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return o.completeNames(resource, &[]string{})(cmd, args, typed)
	}
}

func (o *options) completeContexts(
	_ *cobra.Command, _ []string, typed string,
) ([]cobra.Completion, cobra.ShellCompDirective) {
	var names []string
	if known, err := o.kubeconfigs().Load(); err == nil {
		names = slices.Sorted(maps.Keys(known.Contexts))
	}
	other := func(name string) bool { return !strings.HasPrefix(name, typed) }
	return slices.DeleteFunc(names, other), cobra.ShellCompDirectiveNoFileComp
}
