package controlplane_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/underlay-ccm/underlay/test/testenv/controlplane"
)

// patience limits waits for actions of the control plane.
const patience = 2 * time.Minute

// TestOne contains the tests that can share one control plane.
func TestOne(t *testing.T) {
	cp := controlplane.StartT(t, controlplane.Options{})
	for name, test := range map[string]func(*testing.T, *controlplane.ControlPlane){
		"controllers work":                      controllersWork,
		"services are dual-stack":               servicesAreDualStack,
		"a ServiceAccount may what RBAC grants": serviceAccountMayOnlyWhatRBACGrants,
		"a kubelet may touch its own node":      kubeletMayOnlyTouchItsOwnNode,
		"kubectl":                               kubectl,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, cp)
		})
	}
}

func controllersWork(t *testing.T, cp *controlplane.ControlPlane) {
	client := kubernetes.NewForConfigOrDie(cp.AdminConfig())

	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "fresh"}}
	if _, err := client.CoreV1().Namespaces().Create(t.Context(), namespace,
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the namespace's default ServiceAccount", func(ctx context.Context) (bool, error) {
		_, err := client.CoreV1().ServiceAccounts("fresh").Get(ctx, "default", metav1.GetOptions{})
		return err == nil, nil
	})
	if err := client.CoreV1().Namespaces().Delete(t.Context(), "fresh", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the namespace to go", func(ctx context.Context) (bool, error) {
		_, err := client.CoreV1().Namespaces().Get(ctx, "fresh", metav1.GetOptions{})
		return apierrors.IsNotFound(err), nil
	})
}

func servicesAreDualStack(t *testing.T, cp *controlplane.ControlPlane) {
	client := kubernetes.NewForConfigOrDie(cp.AdminConfig())

	policy := corev1.IPFamilyPolicyRequireDualStack
	service, err := client.CoreV1().Services("default").Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "both"},
		Spec:       corev1.ServiceSpec{IPFamilyPolicy: &policy, Ports: []corev1.ServicePort{{Port: 80}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ips := service.Spec.ClusterIPs
	if len(ips) != 2 || !strings.HasPrefix(ips[0], "10.96.") || !strings.HasPrefix(ips[1], "fd00:96::") {
		t.Errorf("cluster IPs %v, want one of 10.96.0.0/16 and one of fd00:96::/112", ips)
	}
}

func serviceAccountMayOnlyWhatRBACGrants(t *testing.T, cp *controlplane.ControlPlane) {
	manifests := t.TempDir()
	writeFile(t, filepath.Join(manifests, "a.yaml"), `
apiVersion: v1
kind: ServiceAccount
metadata: {name: reader, namespace: mine}
---
# The namespace comes after what lies in it: Apply puts it first.
apiVersion: v1
kind: Namespace
metadata: {name: mine}
`)
	writeFile(t, filepath.Join(manifests, "b.yaml"), `
apiVersion: v1
kind: List
items:
- apiVersion: rbac.authorization.k8s.io/v1
  kind: ClusterRole
  metadata: {name: reads-nodes}
  rules: [{apiGroups: [""], resources: [nodes], verbs: [list]}]
- apiVersion: rbac.authorization.k8s.io/v1
  kind: ClusterRoleBinding
  metadata: {name: reads-nodes}
  roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: reads-nodes}
  subjects: [{kind: ServiceAccount, name: reader, namespace: mine}]
`)
	for range 2 { // applying again must change nothing and succeed
		if err := cp.Apply(t.Context(), manifests); err != nil {
			t.Fatal(err)
		}
	}
	path, err := cp.Kubeconfig(t.Context(), "mine", "reader")
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode of the kubeconfig: %v, %v; want 0600", info.Mode(), err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		t.Fatal(err)
	}
	client := kubernetes.NewForConfigOrDie(config)
	eventually(t, "the granted list of nodes", func(ctx context.Context) (bool, error) {
		_, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		return err == nil, nil // a new binding takes a moment to take effect
	})
	if _, err := client.CoreV1().Secrets("mine").List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("list Secrets, not granted: %v; want forbidden", err)
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
	if _, err := client.CoreV1().Nodes().Create(t.Context(), node,
		metav1.CreateOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("create a Node, not granted: %v; want forbidden", err)
	}

	const reader = "system:serviceaccount:mine:reader"
	eventually(t, "the refused write in the audit log", func(context.Context) (bool, error) {
		events, err := cp.Audit()
		return slices.ContainsFunc(events, func(e controlplane.AuditEvent) bool {
			return e.User == reader && e.Verb == "create" && e.Resource == "nodes" && e.Code == 403
		}), err
	})
	events, err := cp.Audit()
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(events, func(e controlplane.AuditEvent) bool {
		return e.String() == "underlay-test-admin patch clusterroles.rbac.authorization.k8s.io reads-nodes 201"
	}) {
		t.Errorf("the applied ClusterRole is not among the %d audited writes", len(events))
	}
	for _, e := range events {
		if e.Verb == "list" || e.Verb == "get" || e.Verb == "watch" {
			t.Errorf("a read was audited: %s", e)
		}
	}
}

func kubeletMayOnlyTouchItsOwnNode(t *testing.T, cp *controlplane.ControlPlane) {
	config, err := cp.KubeletConfig(t.Context(), "mine")
	if err != nil {
		t.Fatal(err)
	}
	nodes := kubernetes.NewForConfigOrDie(config).CoreV1().Nodes()
	for name, allowed := range map[string]bool{"mine": true, "other": false} {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		_, err := nodes.Create(t.Context(), node, metav1.CreateOptions{})
		if allowed && err != nil || !allowed && !apierrors.IsForbidden(err) {
			t.Errorf("create Node %q as kubelet of %q: %v; want allowed: %t", name, "mine", err, allowed)
		}
	}
}

func TestStopLeavesNothing(t *testing.T) {
	for name, stop := range map[string]func(*controlplane.ControlPlane, context.CancelFunc){
		"Stop":        func(cp *controlplane.ControlPlane, _ context.CancelFunc) { cp.Stop(); cp.Stop() },
		"context end": func(_ *controlplane.ControlPlane, cancel context.CancelFunc) { cancel() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			cp, err := controlplane.Start(ctx, controlplane.Options{Progress: t.Output()})
			if err != nil {
				t.Fatal(err)
			}
			pids := processesIn(t, cp.Dir())
			if len(pids) != 3 {
				t.Errorf("%d programs run in %s, want 3", len(pids), cp.Dir())
			}
			stop(cp, cancel)
			eventually(t, "every program and the folder to go", func(context.Context) (bool, error) {
				for _, pid := range pids {
					if !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
						return false, nil
					}
				}
				_, err := os.Stat(cp.Dir())
				return errors.Is(err, os.ErrNotExist), nil
			})
		})
	}
}

// crashDir makes the test binary, run once more by TestKilledParentLeavesNothing, start a control
// plane in that folder and wait until it is killed.
const crashDir = "UNDERLAY_TEST_CRASH_DIR"

func TestKilledParentLeavesNothing(t *testing.T) {
	if dir := os.Getenv(crashDir); dir != "" {
		controlplane.StartT(t, controlplane.Options{Dir: dir})
		writeFile(t, filepath.Join(dir, "ready"), "")
		<-t.Context().Done()
	}
	if runtime.GOOS != "linux" {
		t.Skip("only Linux ends the children of a process that was killed")
	}
	dir := t.TempDir()
	parent := exec.Command(os.Args[0], "-test.run=^TestKilledParentLeavesNothing$")
	parent.Env = append(os.Environ(), crashDir+"="+dir)
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a control plane of another process", func(context.Context) (bool, error) {
		_, err := os.Stat(filepath.Join(dir, "ready"))
		return err == nil, nil
	})
	if pids := processesIn(t, dir); len(pids) != 3 {
		t.Errorf("%d programs run in %s, want 3", len(pids), dir)
	}
	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := parent.Wait(); err == nil {
		t.Error("the killed process ended well")
	}
	eventually(t, "every program to go", func(context.Context) (bool, error) {
		return len(processesIn(t, dir)) == 0, nil
	})
}

func TestTwoAtOnceAreApart(t *testing.T) {
	clients := make([]*kubernetes.Clientset, 2)
	for i := range clients {
		cp := controlplane.StartT(t, controlplane.Options{WithoutControllerManager: true})
		clients[i] = kubernetes.NewForConfigOrDie(cp.AdminConfig())
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "only-here"}}
	if _, err := clients[0].CoreV1().Nodes().Create(t.Context(), node,
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := clients[1].CoreV1().Nodes().Get(t.Context(), "only-here", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the other control plane's answer: %v; want not found", err)
	}
}

// TestRecordHasTheAccountOfEachRequest reads the record that a control plane writes when it stops.
func TestRecordHasTheAccountOfEachRequest(t *testing.T) {
	folder := t.TempDir()
	t.Setenv(controlplane.RecordsVariable, folder)
	cp := controlplane.StartT(t, controlplane.Options{WithoutControllerManager: true})
	roles := filepath.Join(t.TempDir(), "roles.yaml")
	writeFile(t, roles, watchesNodes)
	if err := cp.Apply(t.Context(), roles); err != nil {
		t.Fatal(err)
	}
	path, err := cp.Kubeconfig(t.Context(), "kube-system", "underlay-reader")
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		t.Fatal(err)
	}
	client := kubernetes.NewForConfigOrDie(config)
	eventually(t, "a granted watch", func(context.Context) (bool, error) {
		_, err := client.CoreV1().Nodes().Watch(t.Context(), metav1.ListOptions{})
		return err == nil, nil // a new binding takes a moment to take effect
	})
	if _, err := client.CoreV1().Secrets("default").List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("list Secrets, not granted: %v; want forbidden", err)
	}
	eventually(t, "the refused read in the audit log", func(context.Context) (bool, error) {
		content, err := os.ReadFile(filepath.Join(cp.Dir(), "audit.log"))
		return bytes.Contains(content, []byte(`"resource":"secrets"`)), err
	})
	if events, err := cp.Audit(); err != nil || slices.ContainsFunc(events, func(e controlplane.AuditEvent) bool { return e.Verb == "watch" }) {
		t.Errorf("reads are among the writes: %v, %v", events, err)
	}
	cp.Stop() // while the watch is open

	records, err := controlplane.ReadRecords(folder)
	if err != nil || len(records) != 1 {
		t.Fatalf("%d records, %v; want one", len(records), err)
	}
	if r := records[0]; r.Package != "test/testenv/controlplane" || r.Test != t.Name() {
		t.Errorf("it is about %s in %s", r.Test, r.Package)
	}
	var got []string
	for _, e := range records[0].Requests {
		got = append(got, e.UserAgent+": "+e.String())
	}
	const reader = "controlplane.test: system:serviceaccount:kube-system:underlay-reader "
	for _, want := range []string{reader + "watch nodes  200", reader + "list secrets default/ 403, which no role grants"} {
		if !slices.Contains(got, want) {
			t.Errorf("%q isn't among\n%s", want, strings.Join(got, "\n"))
		}
	}
}

const watchesNodes = `
apiVersion: v1
kind: ServiceAccount
metadata: {name: underlay-reader, namespace: kube-system}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: watches-nodes}
rules: [{apiGroups: [""], resources: [nodes], verbs: [watch]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: watches-nodes}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: watches-nodes}
subjects: [{kind: ServiceAccount, name: underlay-reader, namespace: kube-system}]
`

func TestRestartAPIServerKeepsDataAndAddress(t *testing.T) {
	cp := controlplane.StartT(t, controlplane.Options{WithoutControllerManager: true})
	client := kubernetes.NewForConfigOrDie(cp.AdminConfig())
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "kept"}}
	if _, err := client.CoreV1().Nodes().Create(t.Context(), node,
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	address := cp.URL()
	if err := cp.RestartAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	if cp.URL() != address {
		t.Errorf("address %s after the restart, %s before", cp.URL(), address)
	}
	if _, err := client.CoreV1().Nodes().Get(t.Context(), "kept", metav1.GetOptions{}); err != nil {
		t.Errorf("a Node made before the restart: %v", err)
	}
}

func kubectl(t *testing.T, cp *controlplane.ControlPlane) {
	out, err := cp.Kubectl(t.Context(), "version")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Client Version: v1.", "Server Version: v1."} {
		if !strings.Contains(out, want) {
			t.Errorf("kubectl version says %q, want %q in it", out, want)
		}
	}
	if _, err := cp.Kubectl(t.Context(), "get", "node", "nobody"); err == nil || !strings.Contains(err.Error(), "nobody") {
		t.Errorf("error of a failed kubectl: %v; want what it said", err)
	}
}

func TestFailedStartReportsTheReason(t *testing.T) {
	dir := t.TempDir()
	_, err := controlplane.Start(t.Context(), controlplane.Options{
		Dir:                dir,
		ExtraAPIServerArgs: []string{"--no-such-flag"},
		Progress:           &bytes.Buffer{},
	})
	if err == nil {
		t.Fatal("started with an unknown flag")
	}
	for _, want := range []string{"unknown flag: --no-such-flag", filepath.Join(dir, "kube-apiserver.log")} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error %q, want %q in it", err, want)
		}
	}
	if pids := processesIn(t, dir); len(pids) != 0 {
		t.Errorf("programs %v still run", pids)
	}
}

// processesIn finds the programs whose working directory is dir.
func processesIn(t *testing.T, dir string) []int {
	t.Helper()
	links, err := filepath.Glob("/proc/[0-9]*/cwd")
	if err != nil {
		t.Fatal(err)
	}
	var pids []int
	for _, link := range links {
		// A process may have ended since, or belong to another user.
		if target, err := os.Readlink(link); err == nil && target == dir {
			pid, err := strconv.Atoi(filepath.Base(filepath.Dir(link)))
			if err != nil {
				t.Fatal(err)
			}
			pids = append(pids, pid)
		}
	}
	return pids
}

func eventually(t *testing.T, what string, condition wait.ConditionWithContextFunc) {
	t.Helper()
	if err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, patience, true,
		condition); err != nil {
		t.Fatalf("wait for %s: %v", what, err)
	}
}

func writeFile(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}
