package run

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/underlay-ccm/underlay/internal/vswitch"
	ipamcontroller "github.com/underlay-ccm/underlay/ipam/controller"
	"github.com/underlay-ccm/underlay/routes/agent"
)

// exception is a command that can't be run unchanged, or can't succeed.
type exception struct {
	// command is its prefix.
	command string
	// why is the reason.
	why string

	// instead are pairs: a text of the command, and its replacement. Without any, and without the
	// fields below, the command is not run at all.
	instead []string
	// also are pairs again: the command with these replacements is run as well.
	also []string
	// fails is part of the standard error of the command, which must fail.
	fails string
	// statuses are exit statuses beside 0 that are accepted.
	statuses []int
	// empty: an empty result is accepted.
	empty bool
	// background: it is a simulated cloud, which runs until the page ends.
	background bool
	// check checks a command that is not run.
	check func(command string) error
}

const (
	noKubelet   = "a kubelet answers it, and there is none"
	noAddress   = "no preferred addresses found"
	onTheNode   = "it is for the node itself, and this machine is none"
	theGateway  = "it takes Contour, which needs minutes to build; test/e2e/gatewayapi types it"
	anotherTool = "a program of others, which needs an account, an engine or a cluster's machines"
)

// exceptions are all of them. The first match applies.
func exceptions() []exception {
	return []exception{
		// Running pods.
		{command: "kubectl -n kube-system logs", why: noKubelet, fails: noAddress},
		{command: "kubectl -n kube-system exec $pod -- /underlay-agent", why: noKubelet, fails: noAddress, also: []string{"kubectl -n kube-system exec $pod -- /underlay-agent check", "underlay-agent check --help"}},
		{command: "kubectl run probe --rm -it", why: noKubelet, instead: []string{"--rm -it", "--dry-run=server"}},
		{command: "kubectl get service web --watch", why: "it never ends", instead: []string{"kubectl", "timeout 2 kubectl"}, statuses: []int{124}},

		// Commands with results only in an unhealthy cluster.
		{command: "kubectl get events --all-namespaces --field-selector reason=", why: "nothing of the kind has happened", empty: true},
		{command: "kubectl -n kube-system get events --field-selector reason=", why: "nothing of the kind has happened", empty: true},
		{command: "kubectl -n kube-system get events --field-selector involvedObject.name=underlay-node-ipam", why: "nothing has happened to the ledger", empty: true},
		{command: "kubectl -n kube-system get configmap underlay-addresses", why: "the cluster has load balancers, and no pool of addresses", fails: "not found"},
		{command: "kubectl -n kube-system delete configmap/underlay-addresses", why: "the cluster has load balancers, and no pool of addresses", fails: "not found"},
		{command: "kubectl get nodes -o custom-columns='NODE:.metadata.name,ADDRESSES:", why: "no agent runs, so none says what it holds", instead: []string{`.metadata.annotations.underlay\.dev/addresses`, ".metadata.name"}},
		{command: "kubectl get nodes -o custom-columns=", why: "no Node waits, no agent runs, and no server is dedicated: a condition that each Node has is asked for", check: conditionName, instead: []string{string(ipamcontroller.PodCIDRsAllocated), "Ready", string(agent.PeersReachable), "Ready", string(vswitch.MemberCondition), "Ready"}},
		{command: "kubectl -n shop annotate service web", why: "the Service that there is lies in another namespace, and keeps its load balancer", instead: []string{"-n shop annotate", "-n default annotate --dry-run=server"}},
		{command: "underlayctl doctor", why: "its status says how bad it is", statuses: []int{1, 2}},

		{
			command: "kubectl -n kube-system patch daemonset underlay-agent", why: "no agent runs, so nobody sees here whether all of them are reached",
			check: allAtOnce, instead: []string{"cleanup", "cleanup"},
		},

		// Files that only the reader has.
		{
			command: "kubectl -n kube-system create secret generic robot", why: "there are no credentials here",
			instead: []string{"--from-file=robot-user=USER_FILE", "--from-literal=robot-user=user", "--from-file=robot-password=PASSWORD_FILE", "--from-literal=robot-password=password"},
		},

		{command: "wg genpsk | kubectl", why: "it may not be installed", instead: []string{"wg genpsk", "echo key"}},

		// Objects that the following pages need.
		{command: "kubectl -n kube-system delete configmap/underlay-node-ipam", why: "underlay-ccm runs and needs them", instead: []string{"delete", "delete --dry-run=server"}},

		// The page's own simulated cloud.
		{command: "go run ./cmd/hcloud-sim measure --yes", why: "it makes servers: test/e2e/measure runs it, in a cloud with packets"},
		{command: "go run ./cmd/hcloud-sim measure clean", why: "it deletes in a project: cmd/hcloud-sim tests it"},
		{command: "go run ./cmd/hcloud-sim measure", why: "it is built already", instead: []string{"go run ./cmd/hcloud-sim", "hcloud-sim"}},
		{command: "go run ./cmd/hcloud-sim --profile cloud.json", why: "no cloud was measured here", background: true, instead: []string{"go run ./cmd/hcloud-sim --profile cloud.json", "hcloud-sim --listen=127.0.0.1:8470 --admin-listen=127.0.0.1:8471"}},
		{command: "go run ./cmd/hcloud-sim --seed seed.yaml --profile profile.json", why: "no cloud was measured here", background: true, instead: []string{"go run ./cmd/hcloud-sim", "hcloud-sim --listen=127.0.0.1:8470 --admin-listen=127.0.0.1:8471", " --profile profile.json", ""}},
		{command: "go run ./cmd/hcloud-sim", why: "it is built already, and the ports may be taken", background: true, instead: []string{"go run ./cmd/hcloud-sim", "hcloud-sim --listen=127.0.0.1:8470 --admin-listen=127.0.0.1:8471"}},

		{command: "underlayctl connectivity", why: "no pod runs here: test/e2e/packets runs it, in namespaces where pods do"},
		{command: "underlayctl nodes --watch", why: "it never ends", instead: []string{"underlayctl", "timeout 5 underlayctl"}, statuses: []int{124}},
		{command: "underlayctl routes --watch", why: "it never ends", instead: []string{"underlayctl", "timeout 5 underlayctl"}, statuses: []int{124}},
		{command: "underlayctl ui", why: "it serves until it is ended: cmd/underlayctl and test/demo look at its page"},

		// A kubeconfig that is copied by SSH.
		{command: "ssh root@CONTROL-1 cat /etc/kubernetes/admin.conf", why: "there is no machine to log in to", instead: []string{"ssh root@CONTROL-1 cat /etc/kubernetes/admin.conf", "cat admin.conf"}},
		{command: "ssh -fN", why: "there is no machine to log in to"},
		{command: "ssh -L", why: "there is no machine to log in to"},
		{command: "make build && export", why: "the programs are built already", instead: []string{"make build && ", ""}},

		// The Gateway API.
		{command: "kubectl apply --server-side -f https://raw.githubusercontent.com/projectcontour/", why: theGateway},
		{command: "kubectl apply -f class.yaml -f gateway.yaml", why: theGateway},
		{command: "kubectl -n edge ", why: theGateway},
		{command: "kubectl -n projectcontour ", why: theGateway},

		// Not run.
		{command: "make ", why: "it takes minutes, and runs this; test/checks/docs knows the targets"},
		{command: "helm install", why: anotherTool + "; test/checks/chart renders the chart", check: chartValues},
		{command: "helm upgrade", why: anotherTool + "; test/e2e/kubeadm/ha types it", check: chartValues},
		{command: "helm ", why: anotherTool + "; test/e2e/kubeadm/ha types it"},
		{command: "hcloud ", why: anotherTool},
		{command: "for name in control-1", why: anotherTool},
		{command: "docker build", why: anotherTool, check: buildTarget},
		{command: "docker push", why: anotherTool},
		{command: "gh release download", why: "there is no release yet"},
		{command: "cosign verify", why: anotherTool},
		{command: "kubectl krew", why: "there is no release yet; test/checks/release reads the manifest"},
		{command: "printf '#!/bin/sh", why: "it writes into the reader's own folder of programs"},
		{command: "chmod +x ~/.local/bin/", why: "it is for the file of the command before"},
		{command: "sha256sum --check", why: "there is no release yet; test/checks/release checks the file"},
		{command: "kubeadm init", why: anotherTool + "; test/e2e/kubeadm types it"},
		{command: "kubeadm join", why: anotherTool + "; test/e2e/kubeadm types it"},
		{command: "kubeadm reset", why: anotherTool + "; test/e2e/kubeadm/ha types it"},
		{command: "reboot", why: onTheNode},
		{command: "chmod 600 /etc/netplan", why: onTheNode},
		{command: "ping ", why: onTheNode},
		{command: "apt-get ", why: onTheNode},
		{command: "bash node.sh", why: onTheNode + "; test/checks/kubeadm runs it"},
		{command: "make-node", why: onTheNode + "; test/checks/kubeadm runs it"},
		{command: "kubectl -n kube-system edit ", why: "an editor opens"},
		{command: "sed -i", why: "it changes the tree; test/e2e/kubeadm/ha types it"},
		{command: "ip ", why: onTheNode},
		{command: "rm ", why: onTheNode},
		{command: "nft ", why: onTheNode},
		{command: "curl http://127.0.0.1:10266/readyz", why: onTheNode, check: agentPort},
	}
}

// allAtOnce checks a change after which no agent is ready any more: a DaemonSet's update would wait
// for the first of them.
func allAtOnce(command string) error {
	if !strings.Contains(command, `"/spec/updateStrategy/rollingUpdate/maxUnavailable","value":"100%"`) {
		return errors.New("it reaches as many nodes as the update may make unavailable, and no others")
	}
	return nil
}

// exceptionOf returns a command's row; nil: it has none.
func exceptionOf(all []exception, command string) *exception {
	i := slices.IndexFunc(all, func(e exception) bool { return strings.HasPrefix(command, e.command) })
	if i < 0 {
		return nil
	}
	return &all[i]
}

// runs reports whether the command is run, changed or not.
func (e *exception) runs() bool {
	return e == nil || len(e.instead) > 0 || e.fails != "" || len(e.statuses) > 0 || e.empty || e.background
}

var (
	setting    = regexp.MustCompile(`--set (\S+?)=`)
	valuesFile = regexp.MustCompile(`--values (deploy/\S+)`)
	target     = regexp.MustCompile(`--target (\S+)`)
	condition  = regexp.MustCompile(`@\.type=="([^"]*)"`)
	address    = regexp.MustCompile(`http://[0-9.]+:([0-9]+)(/\S*)`)
)

// conditionName: a requested condition of Nodes is one that the code sets.
func conditionName(command string) error {
	known := []corev1.NodeConditionType{
		corev1.NodeNetworkUnavailable, ipamcontroller.PodCIDRsAllocated, agent.PeersReachable,
		vswitch.MemberCondition,
	}
	for _, m := range condition.FindAllStringSubmatch(command, -1) {
		if !slices.Contains(known, corev1.NodeConditionType(m[1])) {
			return fmt.Errorf("no Node has a condition %s", m[1])
		}
	}
	return nil
}

// chartValues: the set values are values of the chart, and files of values exist.
func chartValues(command string) error {
	content, err := os.ReadFile(root + "/deploy/chart/values.yaml")
	if err != nil {
		return err
	}
	var values map[string]any
	if err := yaml.Unmarshal(content, &values); err != nil {
		return err
	}
	for _, m := range setting.FindAllStringSubmatch(command, -1) {
		var at any = values
		for _, key := range strings.Split(m[1], ".") {
			section, _ := at.(map[string]any)
			if at = section[key]; at == nil {
				return fmt.Errorf("the chart has no value %s", m[1])
			}
		}
	}
	for _, m := range valuesFile.FindAllStringSubmatch(command, -1) {
		if _, err := os.Stat(filepath.Join(root, m[1])); err != nil {
			return err
		}
	}
	return nil
}

// buildTarget: the Dockerfile has such a stage.
func buildTarget(command string) error {
	m := target.FindStringSubmatch(command)
	content, err := os.ReadFile(root + "/Dockerfile")
	if err == nil && (m == nil || !regexp.MustCompile(`(?im)^FROM .* AS `+regexp.QuoteMeta(m[1])+`$`).Match(content)) {
		err = errors.New("the Dockerfile has no such stage")
	}
	return err
}

// agentPort: the agent listens on the port, which its probe uses too.
func agentPort(command string) error {
	m := address.FindStringSubmatch(command)
	content, err := os.ReadFile(root + "/deploy/agent/daemonset.yaml")
	if err == nil && (!strings.Contains(string(content), "--port="+m[1]) || !strings.Contains(string(content), "path: "+m[2]+"\n")) {
		err = errors.New("the agent's manifest has another port or path")
	}
	return err
}
