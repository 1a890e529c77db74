/** One lock client on Spring Data Redis: the argument says which. */
final class SpringLocks {
    private SpringLocks() {}

    public static void main(String[] args) {
        try {
            switch (args[0]) {
                case "integration" -> IntegrationLocks.run();
                case "shedlock" -> ShedLocks.run();
                default -> throw new IllegalArgumentException(args[0]);
            }
            System.out.println("done");
            System.exit(0);
        } catch (Throwable error) {
            error.printStackTrace();
            System.exit(1);
        }
    }
}
