package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// offered returns the completions of the last word, and whether they include files.
func offered(t *testing.T, words ...string) (names []string, files bool) {
	t.Helper()
	out, errs, code := called(t, "underlayctl", append([]string{"__complete"}, words...)...)
	if code != 0 || strings.Contains(errs, "error") {
		t.Fatalf("%q: exit code %d: %s", words, code, errs)
	}
	directive := -1
	for line := range strings.Lines(out) {
		name, _, _ := strings.Cut(strings.TrimSpace(line), "\t")
		if _, err := fmt.Sscanf(name, ":%d", &directive); err != nil {
			names = append(names, name)
		}
	}
	if directive < 0 {
		t.Fatalf("%q: %s", words, out)
	}
	return names, cobra.ShellCompDirective(directive)&cobra.ShellCompDirectiveNoFileComp == 0
}

// Files are completed for the flags that name one, and nowhere else.
func TestWhereFilesAreOffered(t *testing.T) {
	t.Setenv("KUBECONFIG", "/nowhere/at/all")
	named := map[string]bool{}
	var walk func(*cobra.Command, []string)
	walk = func(cmd *cobra.Command, path []string) {
		if _, files := offered(t, append(slices.Clone(path), "")...); files {
			t.Errorf("%q offers files", path)
		}
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if f.NoOptDefVal != "" && f.Name != "token-secret" {
				return
			}
			_, files := offered(t, append(slices.Clone(path), "--"+f.Name+"=")...)
			if files {
				named[f.Name] = true
			} else if strings.Contains(strings.ToLower(f.Usage), "file ") {
				t.Errorf("%q --%s offers no files: %s", path, f.Name, f.Usage)
			}
		})
		for _, below := range cmd.Commands() {
			walk(below, append(slices.Clone(path), below.Name()))
		}
	}
	root := newCommand(process{})
	root.InitDefaultHelpFlag()
	walk(root, nil)
	want := map[string]bool{"kubeconfig": true, "cloud-config": true, "token-file": true}
	if fmt.Sprint(named) != fmt.Sprint(want) {
		t.Errorf("files are offered to %v, want %v", named, want)
	}
}

// answers serves lists as an API server does, and returns a kubeconfig for it.
func answers(t *testing.T, lists map[string]any) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if list := lists[r.URL.Path]; list != nil {
			_ = json.NewEncoder(w).Encode(list)
			return
		}
		w.WriteHeader(http.StatusForbidden)
	}))
	t.Cleanup(server.Close)
	file := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf(`apiVersion: v1
kind: Config
clusters: [{name: it, cluster: {server: %q}}, {name: other, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: me, user: {}}]
contexts: [{name: prod, context: {cluster: it, user: me}}, {name: preview, context: {cluster: other, user: me}}, {name: lab, context: {cluster: it, user: me}}]
current-context: prod
`, server.URL)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestNamesAreOffered(t *testing.T) {
	type list struct {
		Kind       string `json:"kind"`
		APIVersion string `json:"apiVersion"`
		Items      any    `json:"items"`
	}
	named := func(namespace, name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: namespace, Name: name}
	}
	balanced := corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer}
	t.Setenv("KUBECONFIG", answers(t, map[string]any{
		"/api/v1/nodes": list{"NodeList", "v1", []corev1.Node{
			{ObjectMeta: named("", "control-1")}, {ObjectMeta: named("", "worker-1")}, {ObjectMeta: named("", "worker-2")},
		}},
		"/api/v1/services": list{"ServiceList", "v1", []corev1.Service{
			{ObjectMeta: named("shop", "web"), Spec: balanced}, {ObjectMeta: named("shop", "inside")}, {ObjectMeta: named("mail", "smtp"), Spec: balanced},
		}},
	}))
	for words, want := range map[string]string{
		"inspect node |":                                 "control-1 worker-1 worker-2",
		"inspect node |w":                                "worker-1 worker-2",
		"inspect node worker-1 |":                        "",
		"inspect service |":                              "shop/web shop/inside mail/smtp",
		"inspect service |shop/":                         "shop/web shop/inside",
		"inspect |":                                      "node pod service",
		"connectivity --node |":                          "control-1 worker-1 worker-2",
		"connectivity --node worker-1 --node |":          "control-1 worker-2",
		"nodes --context |":                              "lab preview prod",
		"nodes --context |pr":                            "preview prod",
		"inspect node --context preview |":               "", // which doesn't respond
		"inspect node --context nobody |":                "",
		"nodes --kubeconfig /nowhere/at/all --context |": "",
		"nodes --output |":                               "table wide json yaml",
		"nodes |":                                        "",
	} {
		before, last, _ := strings.Cut(words, "|")
		names, files := offered(t, append(strings.Fields(before), last)...)
		if got := strings.Join(names, " "); got != want || files {
			t.Errorf("%s: %q, files: %t, want %q", words, got, files, want)
		}
	}
}
