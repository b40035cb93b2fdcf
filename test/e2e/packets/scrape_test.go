//go:build linux

package packets

import (
	"crypto/tls"
	"flag"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/underlay-ccm/underlay/test/testenv/netlab"
)

var update = flag.Bool("update", false, "record what the programs show anew instead of comparing it")

// scrapes reads both programs' metrics as Prometheus does, and compares them with the recording for
// the tests of the alerts: a program may have more metrics since, but none of the recorded ones may
// have another form.
func scrapes(t *testing.T, f *netlab.Lab) {
	one := f.Machine("one")
	run(t, one, "ip", "route", "flush", "proto", "201") // or there would be no repair to count
	token := monitoringToken(t, f)
	for _, other := range []string{"", "nonsense"} {
		if shown := managerMetrics(t, f, other); strings.Contains(shown, "underlay_") {
			t.Errorf("with the token %q the secure port shows metrics:\n%s", other, shown)
		}
	}
	for program, read := range map[string]func() string{
		"underlay-ccm":   func() string { return managerMetrics(t, f, token) },
		"underlay-agent": func() string { _, body := one.Agent(t.Context(), "/metrics"); return body },
	} {
		file := filepath.Join("..", "..", "checks", "alerts", "testdata", program+".prom")
		if *update {
			if err := os.WriteFile(file, []byte(strings.Join(ourFamilies(read()), "\n")+"\n"), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		recorded, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		want := shapes(strings.Split(string(recorded), "\n"))
		await(t, program+" shows what is recorded in "+file+"; record it anew with -update", func() string {
			now := shapes(ourFamilies(read()))
			for _, name := range slices.Sorted(maps.Keys(want)) {
				if now[name] != want[name] {
					return fmt.Sprintf("%s is %q, recorded is %q", name, now[name], want[name])
				}
			}
			return ""
		})
	}
}

// ourFamilies returns the lines of a scrape with Underlay's gauges and counters, and with the
// leader.
func ourFamilies(scrape string) (lines []string) {
	keep := false
	for line := range strings.Lines(scrape) {
		line = strings.TrimSpace(line)
		words := strings.Fields(line)
		if strings.HasPrefix(line, "# TYPE ") {
			ours := strings.HasPrefix(words[2], "underlay_") || words[2] == "leader_election_master_status"
			keep = ours && (words[3] == "gauge" || words[3] == "counter")
		}
		if keep && !strings.HasPrefix(line, "# HELP ") {
			lines = append(lines, line)
		}
	}
	return lines
}

var label = regexp.MustCompile(`([a-z_]+)="`)

// shapes returns the metrics' kinds, with the names of their labels.
func shapes(lines []string) map[string]string {
	out := map[string]string{}
	for _, line := range lines {
		if words := strings.Fields(line); strings.HasPrefix(line, "# TYPE ") {
			out[words[2]] = words[3]
		} else if name, rest, labeled := strings.Cut(line, "{"); labeled && !strings.Contains(out[name], "(") {
			var names []string
			for _, found := range label.FindAllStringSubmatch(rest, -1) {
				names = append(names, found[1])
			}
			out[name] += fmt.Sprint(" (", strings.Join(names, ", "), ")")
		}
	}
	return out
}

// monitoringToken is a token of an account that may only read metrics.
func monitoringToken(t *testing.T, f *netlab.Lab) string {
	t.Helper()
	const name = "prometheus"
	accounts := f.Client.CoreV1().ServiceAccounts(metav1.NamespaceSystem)
	if _, err := accounts.Create(t.Context(),
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}},
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Client.RbacV1().ClusterRoleBindings().Create(t.Context(),
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Subjects: []rbacv1.Subject{
				{Kind: rbacv1.ServiceAccountKind, Name: name, Namespace: metav1.NamespaceSystem},
			},
			RoleRef: rbacv1.RoleRef{
				APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "system:monitoring",
			},
		}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	granted, err := accounts.CreateToken(t.Context(), name, &authenticationv1.TokenRequest{},
		metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return granted.Status.Token
}

func managerMetrics(t *testing.T, f *netlab.Lab, token string) string {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, f.Manager.URL+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+token)
	client := http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{
		// Its certificate is self-signed.
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true,
	}}
	answer, err := client.Do(request)
	if err != nil {
		return err.Error()
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		return err.Error()
	}
	return string(body)
}
