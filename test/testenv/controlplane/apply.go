package controlplane

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"
)

// fieldManager owns the fields that Apply sets.
const fieldManager = "underlay-test"

// Apply applies manifests, as administrator and server-side: YAML files, or folders with all *.yaml
// below them, in the order given, names sorted within a folder, Namespaces first. A namespaced
// object without a namespace is created in "default".
func (c *ControlPlane) Apply(ctx context.Context, manifests ...string) error {
	objects, err := readManifests(manifests)
	if err != nil {
		return err
	}
	client, err := dynamic.NewForConfig(c.admin)
	if err != nil {
		return fmt.Errorf("apply: make a client: %w", err)
	}
	groups, err := discoverGroups(ctx, c.client.Discovery())
	if err != nil {
		return err
	}
	mapper := restmapper.NewDiscoveryRESTMapper(groups)
	for _, object := range objects {
		if err := applyObject(ctx, client, mapper, object); err != nil {
			return fmt.Errorf("apply %s %s: %w", object.GetKind(), object.GetName(), err)
		}
	}
	return nil
}

func discoverGroups(
	ctx context.Context, client discovery.DiscoveryInterface,
) ([]*restmapper.APIGroupResources, error) {
	groups, err := restmapper.GetAPIGroupResources(client)
	if err != nil {
		return nil, fmt.Errorf("apply: ask the server for its kinds: %w", err)
	}
	return groups, context.Cause(ctx)
}

func applyObject(
	ctx context.Context, client dynamic.Interface, mapper meta.RESTMapper,
	object *unstructured.Unstructured,
) error {
	kind := object.GroupVersionKind()
	mapping, err := mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return err
	}
	var target dynamic.ResourceInterface = client.Resource(mapping.Resource)
	if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
		if object.GetNamespace() == "" {
			object.SetNamespace(metav1.NamespaceDefault)
		}
		target = client.Resource(mapping.Resource).Namespace(object.GetNamespace())
	}
	_, err = target.Apply(ctx, object.GetName(), object, metav1.ApplyOptions{
		FieldManager: fieldManager, Force: true,
	})
	return err
}

// readManifests reads all objects before the first is applied, so that a mistake in the last file
// leaves no partial result.
func readManifests(paths []string) ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	for _, path := range paths {
		files, err := manifestFiles(path)
		if err != nil {
			return nil, fmt.Errorf("find manifests: %w", err)
		}
		for _, file := range files {
			content, err := os.ReadFile(file)
			if err != nil {
				return nil, fmt.Errorf("read a manifest: %w", err)
			}
			found, err := parseManifest(content)
			if err != nil {
				return nil, fmt.Errorf("parse %s: %w", file, err)
			}
			objects = append(objects, found...)
		}
	}
	slices.SortStableFunc(objects, func(a, b *unstructured.Unstructured) int {
		return order(a) - order(b)
	})
	return objects, nil
}

func order(object *unstructured.Unstructured) int {
	if object.GetKind() == "Namespace" {
		return 0
	}
	return 1
}

func manifestFiles(path string) ([]string, error) {
	var files []string
	err := filepath.WalkDir(path, func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		if file == path || strings.HasSuffix(file, ".yaml") {
			files = append(files, file)
		}
		return nil
	})
	if err == nil && len(files) == 0 {
		err = fmt.Errorf("no *.yaml in %s", path)
	}
	return files, err
}

// parseManifest splits a file into its documents and lists into their items.
func parseManifest(content []byte) ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	documents := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(content), 4096)
	for {
		object := &unstructured.Unstructured{}
		err := documents.Decode(object)
		switch {
		case errors.Is(err, io.EOF):
			return objects, nil
		case err != nil:
			return nil, err
		case len(object.Object) == 0: // only comments between two separators
			continue
		case !object.IsList():
			objects = append(objects, object)
			continue
		}
		err = object.EachListItem(func(item runtime.Object) error {
			objects = append(objects, item.(*unstructured.Unstructured))
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
}
