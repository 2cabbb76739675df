package penstock.client;

import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;

/** The example of README.md. */
final class JavaProgram {
    private static final BlockingQueue<String> SHOWN = new LinkedBlockingQueue<>();

    private JavaProgram() {}

    private static void show(Object value) {
        SHOWN.add(String.valueOf(value));
    }

    /** Returns what was said, and the history of the room, in any order. */
    static String[] run(String url) throws Exception {
        // README: begin java
        JavaClient client = new JavaClient(url);
        client.on("SAID", message -> show(message.getPayload()));
        client.subscribe("room/java", new SubscribeOptions(), event -> {});
        client.send("SAY", "{\"room\":\"java\",\"text\":\"hi\"}").get();
        client.call("GET_HISTORY", "{\"room\":\"java\"}", 5_000L).thenAccept(history -> show(history));
        // README: end
        String[] results = {SHOWN.poll(30, TimeUnit.SECONDS), SHOWN.poll(30, TimeUnit.SECONDS)};
        client.close().get();
        return results;
    }

    /** Answers calls of the server. */
    static boolean delete(String url) throws Exception {
        Options options = new Options();
        options.setTimeoutMs(10_000);
        options.setTokenProvider(expired -> null);
        JavaClient client = new JavaClient(url, options);
        client.handle("ASK_USER", "USER_ANSWER", question -> CompletableFuture.completedFuture("{\"yes\":true}"));
        String deleted = client.call("DELETE_ROOM", "{\"room\":\"go\"}").get();
        client.close().get();
        return deleted.contains("true");
    }

    /** Returns the code of a call that fails. */
    static String failure(String url) throws Exception {
        JavaClient client = new JavaClient(url);
        try {
            client.call("GET_HISTORY", "{\"room\":\"nowhere\"}").get();
            return "";
        } catch (ExecutionException failed) {
            return ((PenstockException) failed.getCause()).getCode();
        } finally {
            client.close().get();
        }
    }
}
